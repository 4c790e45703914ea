//! Who may look, who may act, and how documents look.

use serde_json::{Value, json};

use super::harness::{ACT, PATIENCE, Server, VIEW, command, finding, leaker};

#[test]
fn without_a_token_only_the_health_and_the_page_are_answered() {
    let server = Server::start();
    for path in [
        "/metrics",
        "/api/v1/overview",
        "/api/v1/processes",
        "/api/v1/findings",
        "/api/v1/snapshot?pid=1",
        "/api/v1/service?name=x",
        "/api/v1/events",
    ] {
        let (status, head, body) = server.request(&format!("GET {path}"), None, "");
        assert_eq!(status, 401, "{path}: {body}");
        assert!(head.contains("www-authenticate: Bearer"), "{head}");
        let problem: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(problem["schema"], "fdguard.problem/1");
        let (status, _, _) =
            server.request(&format!("GET {path}"), Some("wrong-token-0123456"), "");
        assert_eq!(status, 401, "{path}");
    }
    for path in ["/healthz", "/"] {
        let (status, head, _) = server.request(&format!("GET {path}"), None, "");
        assert_eq!(status, 200, "{path}");
        assert!(head.contains("nosniff"), "{head}");
    }
    let (status, _, _) = server.request("GET /nothing", Some(VIEW), "");
    assert_eq!(status, 404);
    let (status, _, _) = server.request("DELETE /metrics", Some(VIEW), "");
    assert_eq!(status, 405);
}

#[test]
fn foreign_names_and_pages_are_refused() {
    let server = Server::start();
    let ask = |host: &str, origin: &str| {
        use std::io::Write as _;
        let mut stream = std::net::TcpStream::connect(server.address).unwrap();
        write!(
            stream,
            "GET /api/v1/overview HTTP/1.1\r\nHost: {host}\r\n{origin}\
             Authorization: Bearer {VIEW}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        super::harness::answer(&mut stream).0
    };
    let own = server.address.to_string();
    assert_eq!(ask(&own, ""), 200);
    assert_eq!(ask("evil.example", ""), 421);
    assert_eq!(ask(&own, "Origin: https://evil.example\r\n"), 403);
    assert_eq!(ask(&own, &format!("Origin: http://{own}\r\n")), 200);
}

#[test]
fn metrics_can_be_public_and_speak_open_metrics() {
    let server = Server::with(|options| options.web.public_metrics = true);
    server.ticks(2);
    let (status, head, text) = server.request("GET /metrics", None, "");
    assert_eq!(status, 200);
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(text.contains("\nfdguard_serve_ticks_total "), "{text}");
    assert!(!text.contains("# EOF"));
    // What Prometheus asks for.
    let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    let host = server.address;
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    );
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let (status, head, text) = super::harness::answer(&mut stream);
    assert_eq!(status, 200);
    let kind = "content-type: application/openmetrics-text; version=1.0.0";
    assert!(head.contains(kind), "{head}");
    assert!(
        text.contains("\n# TYPE fdguard_serve_ticks counter\n"),
        "{text}"
    );
    assert!(text.contains("\nfdguard_serve_ticks_total "), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn a_suppression_needs_the_right_to_act_and_a_reason() {
    let server = Server::start();
    let mut victim = leaker().nofile(60).start();
    victim.tell("54 file");
    let pid = victim.pid();
    let id = server.wait("a finding", |overview| {
        let all = overview["findings"].as_array()?;
        all.iter().find(|one| one["finding"]["pid"] == pid)?["id"].as_u64()
    });
    let path = format!("POST /api/v1/findings/{id}/suppress");
    let good = json!({"reason": "a test"}).to_string();
    assert_eq!(server.request(&path, Some(VIEW), &good).0, 401);
    assert_eq!(server.request(&path, Some(ACT), "{}").0, 422);
    assert_eq!(
        server.request(&path, Some(ACT), "{\"reason\": \" \"}").0,
        422
    );
    assert_eq!(
        server
            .request("POST /api/v1/findings/99999/suppress", Some(ACT), &good)
            .0,
        404
    );
    assert_eq!(server.request(&path, Some(ACT), &good).0, 204);
    let shown = server.json("/api/v1/findings?state=suppressed");
    assert_eq!(shown["schema"], "fdguard.serve.findings/1");
    let shown = shown["findings"].as_array().unwrap();
    let shown = shown
        .iter()
        .find(|one| one["id"] == id)
        .expect("the suppressed finding");
    assert_eq!(shown["reason"], "a test");
    server.ticks(10);
    let log = server.log();
    let opened = log.iter().filter(|line| {
        line.contains("event=finding_opened") && line.contains(&format!("pid={pid} "))
    });
    assert_eq!(opened.count(), 1, "it stays quiet: {log:#?}");
    // It survives a restart of the server.
    let state = server.stop();
    let server = Server::in_dir(state, |_| {});
    server.ticks(20);
    let overview = server.json("/api/v1/overview");
    let again = overview["findings"].as_array().unwrap().clone();
    let again = again.iter().find(|one| one["finding"]["pid"] == pid);
    assert!(
        again.is_none_or(|one| one["state"] == "suppressed"),
        "{again:?}"
    );
    victim.finish();
}

#[test]
fn documents_have_schemas_and_unknown_is_null() {
    let server = Server::start();
    let victim = leaker().start();
    let path = format!("/api/v1/overview?sort=name&q={}&limit=1", command());
    let overview = testkit::wait_for("the service", || {
        let overview = server.json(&path);
        let has_it = !overview["services"].as_array()?.is_empty();
        has_it.then_some(overview)
    });
    assert_eq!(overview["schema"], "fdguard.serve.overview/1");
    assert_eq!(overview["host"], "test-host");
    let services = overview["services"].as_array().unwrap();
    assert_eq!(services.len(), 1, "{services:?}");
    let leaker = &services[0];
    assert_eq!(
        (&leaker["kind"], &leaker["name"]),
        (&"command".into(), &command().into())
    );
    assert_eq!(
        (&leaker["verdict"], &leaker["classes"]),
        (&"unknown".into(), &Value::Null)
    );
    assert!(leaker["open_fds"].as_u64().unwrap() >= 3);
    let path = format!("/api/v1/service?kind=command&name={}", command());
    // It is shown before it is written.
    let service = testkit::wait_for("its history", || {
        let service = server.json(&path);
        (!service["history"].is_null()).then_some(service)
    });
    assert_eq!(service["schema"], "fdguard.serve.service/1");
    assert_eq!(service["now"]["name"], command());
    assert_eq!(service["history"]["schema"], "fdguard.history/1");
    let snapshot = server.json(&format!("/api/v1/snapshot?pid={}", victim.pid()));
    assert_eq!(snapshot["schema"], "fdguard.snapshot/1");
    assert_eq!(snapshot["process"]["pid"], victim.pid());
    for bad in [
        "/api/v1/overview?sort=luck",
        "/api/v1/overview?colour=red",
        "/api/v1/findings?state=lost",
        "/api/v1/service",
        "/api/v1/service?kind=car&name=x",
        "/api/v1/snapshot?pid=abc",
    ] {
        let (status, _, body) = server.request(&format!("GET {bad}"), Some(VIEW), "");
        assert_eq!(status, 400, "{bad}: {body}");
    }
    let (status, _, _) = server.request("GET /api/v1/service?name=nobody", Some(VIEW), "");
    assert_eq!(status, 404);
    let (status, _, _) = server.request("GET /api/v1/snapshot?pid=4194304", Some(VIEW), "");
    assert_eq!(status, 404);
    victim.finish();
}

#[test]
fn news_comes_by_server_sent_events() {
    use std::io::BufRead as _;
    let server = Server::start();
    let mut events = server.events();
    let mut victim = leaker().nofile(60).start();
    victim.tell("54 file");
    let pid = victim.pid();
    let (mut has_tick, mut found) = (false, None);
    while !has_tick || found.is_none() {
        let mut line = String::new();
        assert!(events.read_line(&mut line).unwrap() > 0, "the stream ended");
        has_tick |= line.starts_with("event: tick");
        let Some(data) = line.strip_prefix("data: ") else {
            continue;
        };
        let data: Value = serde_json::from_str(data).unwrap();
        if data["finding"]["finding"]["pid"] == pid {
            assert_eq!(data["schema"], "fdguard.serve.finding-event/1");
            // Whichever rule comes first: its finding can be read as soon as its event is here.
            if found.is_none() {
                assert_eq!(data["change"], "opened", "{data}");
                let rule = data["finding"]["rule"].as_str().unwrap();
                let overview = server.json("/api/v1/overview");
                found = finding(&overview, pid, rule);
                assert!(found.is_some(), "{rule}: {overview}");
            }
        }
    }
    server.wait("the finding of its level", |overview| {
        finding(overview, pid, "soft-limit-level")
    });
    victim.finish();
}

#[test]
fn with_a_certificate_it_speaks_tls_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = fdguard_serve::read_tls(&cert, &key).unwrap();
    assert!(fdguard_serve::read_tls(&key, &cert).is_err());
    let server = Server::with(|options| options.web.tls = Some(tls));
    let curl = std::process::Command::new("curl")
        .args(["--silent", "--cacert", cert.to_str().unwrap()])
        .args([
            "--resolve",
            &format!("localhost:{}:127.0.0.1", server.address.port()),
        ])
        .arg(format!(
            "https://localhost:{}/healthz",
            server.address.port()
        ))
        .output();
    let Ok(curl) = curl else {
        return testkit::skip("curl is not installed");
    };
    let text = String::from_utf8(curl.stdout).unwrap();
    assert!(
        text.contains("fdguard.serve.health/1"),
        "{text} {}",
        String::from_utf8_lossy(&curl.stderr)
    );
    let heard = plain_request(server.address);
    assert!(!heard.starts_with(b"HTTP/"), "{heard:?}");
}

/// Everything that comes back for a request without TLS. The server may close or reset the
/// connection at any moment.
fn plain_request(address: std::net::SocketAddr) -> Vec<u8> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    drop(stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let mut heard = Vec::new();
    if let Err(error) = stream.read_to_end(&mut heard) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    heard
}
