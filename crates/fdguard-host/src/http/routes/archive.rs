//! Archives: logs are moved below the folders that the host was given, and nowhere else.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use axum::response::Response;
use fdguard_files::archive::{Archive, Report};
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::sessions::within;
use crate::Error;
use crate::http::body;
use crate::http::problem::Problem;
use crate::http::route::{self, Asked, Route};

const SCHEMA: &str = "fdguard.archive/1";
/// Who waits longer asks again.
const LONGEST_WAIT: u64 = 600_000;
/// More are more than one request.
const MOST_FILES: usize = 10_000;

/// Files that are to be archived.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewArchive {
    /// Whole paths, below one of the host's roots.
    #[schemars(length(min = 1, max = 10_000))]
    pub(crate) files: Vec<PathBuf>,
    /// The folder that they go to, below the same root; made where it is missing.
    pub(crate) to: PathBuf,
    /// How long to wait for writers and locks, for all files together; 10000 when absent.
    #[schemars(range(max = 600_000))]
    pub(crate) wait_ms: Option<u64>,
}

/// What an archive did, file by file; `fdguard archive --json` gives the same.
#[derive(Debug, Serialize, JsonSchema)]
struct Reported {
    /// When it began, RFC 3339.
    taken_at: String,
    /// The archive.
    to: Value,
    /// Whether every file is in an archive now.
    success: bool,
    /// A receipt for each file.
    files: Vec<Value>,
    /// How long all of it took, in milliseconds.
    took_ms: f64,
}

pub(in crate::http) fn routes() -> Vec<Route> {
    vec![
        Route::raw((Method::POST, "/v1/archive"), "archive", archive)
            .summary("Move logs into an archive without losing a line; only below the host's roots")
            .takes::<NewArchive>()
            .gives::<Reported>(StatusCode::OK, SCHEMA)
            .example(json!({"files": ["/srv/agents/a/log.jsonl"], "to": "/srv/agents/archive", "wait_ms": 2000})),
    ]
}

async fn archive(asked: Asked, bytes: bytes::Bytes) -> Result<Response, Problem> {
    let body: NewArchive = body::decode(&asked.headers, &bytes)?;
    let report = run(&asked.api.settings.roots, body).await?;
    route::json(StatusCode::OK, &report)
}

/// Archives files below these roots.
pub(crate) async fn run(roots: &[PathBuf], asked: NewArchive) -> Result<Report, Problem> {
    within(asked.files.len(), 1, MOST_FILES, "files")?;
    let root = root_of(roots, &asked.to)?;
    let mut archive = Archive::new(asked.to);
    archive.within = Some(root.clone());
    if let Some(ms) = asked.wait_ms {
        archive.wait = Duration::from_millis(within(ms, 0, LONGEST_WAIT, "wait_ms")?);
    }
    let files = asked.files;
    for file in &files {
        below(&root, file)?;
    }
    let report = tokio::task::spawn_blocking(move || archive.run(&files)).await;
    Ok(report.map_err(|_ended| Error::Closing)?)
}

/// The root that a folder is below. What of it exists is looked at as it really is: a link must not lead out.
pub(in crate::http) fn root_of(roots: &[PathBuf], folder: &Path) -> Result<PathBuf, Problem> {
    let forbidden = |why: String| Problem::new(StatusCode::FORBIDDEN, "outside-roots", why);
    if roots.is_empty() {
        let why = "no folder may be touched: the host was started without --root";
        return Err(forbidden(why.to_owned()));
    }
    let real = real(folder).ok_or_else(|| {
        let why = format!("{} is no whole path without `..`", folder.display());
        Problem::senseless(why)
    })?;
    let found = roots.iter().find(|root| real.starts_with(root));
    found.cloned().ok_or_else(|| {
        let why = format!("{} is below none of the host's roots", folder.display());
        forbidden(why)
    })
}

/// A path with the links of what exists of it resolved; none where it is not whole.
fn real(path: &Path) -> Option<PathBuf> {
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(is_plain) {
        return None;
    }
    let mut there = path;
    let mut missing = Vec::new();
    loop {
        if let Ok(real) = there.canonicalize() {
            missing.reverse();
            return Some(missing.into_iter().fold(real, |path, name| path.join(name)));
        }
        // A link that leads nowhere could lead elsewhere in a moment.
        if there.symlink_metadata().is_ok() {
            return None;
        }
        missing.push(there.file_name()?.to_owned());
        there = there.parent()?;
    }
}

/// The archive itself looks again, at what it opened; this gives one clear refusal for all.
fn below(root: &Path, file: &Path) -> Result<(), Problem> {
    let folder = file.parent().and_then(real);
    if folder.is_some_and(|folder| folder.starts_with(root)) {
        return Ok(());
    }
    let why = format!("{} is not below {}", file.display(), root.display());
    Err(Problem::new(StatusCode::FORBIDDEN, "outside-roots", why))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::{real, root_of};

    #[test]
    fn what_leads_out_of_the_roots_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let (inside, outside) = (base.join("in"), base.join("out"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        symlink(&outside, inside.join("link")).unwrap();
        symlink(base.join("nowhere"), inside.join("dangling")).unwrap();
        let roots = [inside.clone()];
        assert_eq!(root_of(&roots, &inside.join("a/b")).unwrap(), inside);
        for (path, status) in [
            (inside.join("link"), 403),
            (inside.join("link/a"), 403),
            (inside.join("dangling/a"), 422),
            (inside.join("../out"), 422),
            (base.join("inside"), 403),
            ("relative".into(), 422),
        ] {
            let problem = root_of(&roots, &path).unwrap_err();
            assert_eq!(problem.status().as_u16(), status, "{}", path.display());
        }
        assert_eq!(root_of(&[], &inside).unwrap_err().status().as_u16(), 403);
        assert_eq!(real(&inside.join("link/a")), Some(outside.join("a")));
    }
}
