//! The page: a few files without a build step, and no external requests.

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{HeaderValue, header};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, type and text of each file.
const FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("page/index.html")),
    ("/page/style.css", CSS, include_str!("page/style.css")),
    ("/page/app.js", SCRIPT, include_str!("page/app.js")),
    ("/page/chart.js", SCRIPT, include_str!("page/chart.js")),
    ("/page/dom.js", SCRIPT, include_str!("page/dom.js")),
    ("/page/finding.js", SCRIPT, include_str!("page/finding.js")),
    (
        "/page/findings.js",
        SCRIPT,
        include_str!("page/findings.js"),
    ),
    ("/page/flame.js", SCRIPT, include_str!("page/flame.js")),
    ("/page/fleet.js", SCRIPT, include_str!("page/fleet.js")),
    (
        "/page/overview.js",
        SCRIPT,
        include_str!("page/overview.js"),
    ),
    ("/page/rows.js", SCRIPT, include_str!("page/rows.js")),
    ("/page/service.js", SCRIPT, include_str!("page/service.js")),
    ("/page/session.js", SCRIPT, include_str!("page/session.js")),
    (
        "/page/snapshot.js",
        SCRIPT,
        include_str!("page/snapshot.js"),
    ),
    ("/page/uplot.css", CSS, include_str!("page/uplot/uplot.css")),
    (
        "/page/uplot.js",
        SCRIPT,
        include_str!("page/uplot/uplot.js"),
    ),
];

/// Only scripts of this server run, and the page connects to no other server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Adds the files to a router.
pub(super) fn routes<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    FILES.iter().fold(router, |router, (path, kind, text)| {
        router.route(path, get(|| async { answer(kind, text) }))
    })
}

fn answer(kind: &'static str, text: &'static str) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let policy = HeaderValue::from_static(POLICY);
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    let referrer = HeaderValue::from_static("no-referrer");
    headers.insert(header::REFERRER_POLICY, referrer);
    response
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::FILES;

    #[test]
    fn every_file_of_the_page_is_served_and_refers_to_nothing_outside() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/web/page");
        let mut there: Vec<String> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "uplot" && name != "index.html")
            .map(|name| format!("/page/{name}"))
            .collect();
        there.sort();
        let served = FILES.iter().map(|(path, _, _)| *path);
        let served: Vec<&str> = served
            .filter(|path| *path != "/" && !path.contains("uplot"))
            .collect();
        let mut sorted = served.clone();
        sorted.sort_unstable();
        assert_eq!(there, sorted);
        for (path, _, text) in FILES.iter().filter(|(path, _, _)| !path.contains("uplot")) {
            assert!(!text.contains("://"), "{path} refers to another server");
            assert!(!text.contains("innerHTML"), "{path} must set text only");
        }
    }

    #[test]
    fn the_plotting_library_is_the_one_that_is_written_down() {
        let record = include_str!("page/uplot/README.md");
        for (path, _, text) in FILES.iter().filter(|(path, _, _)| path.contains("uplot")) {
            let digest = Sha256::digest(text.as_bytes());
            let sum: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(record.contains(&sum), "{path}: {sum}");
        }
    }
}
