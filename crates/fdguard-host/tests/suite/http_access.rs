//! Which requests are accepted, and how the others are refused.

use super::http_harness::{ServedHost, TOKEN};

#[test]
fn without_the_token_only_the_health_is_told() {
    let served = ServedHost::start();
    let host = served.address;
    let ask = |path: &str, more: &str| {
        served.raw(
            format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{more}\r\n")
                .as_bytes(),
        )
    };
    let health = ask("/v1/health", "");
    assert!(health.starts_with("HTTP/1.1 200 "), "{health}");
    assert!(
        health.contains("\"schema\":\"fdguard.health/1\""),
        "{health}"
    );
    for path in [
        "/v1/sessions",
        "/metrics",
        "/v1/openapi.json",
        "/v1/nothing",
    ] {
        let answer = ask(path, "");
        assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
        assert!(answer.contains("www-authenticate: Bearer"), "{answer}");
        assert!(answer.contains("\"code\":\"no-token\""), "{answer}");
    }
    for wrong in [
        "Bearer 0123456789abcdef0123456789abcdeF",
        "Bearer",
        "Basic abc",
        "",
    ] {
        let answer = ask("/v1/sessions", &format!("authorization: {wrong}\r\n"));
        assert!(answer.starts_with("HTTP/1.1 401 "), "{wrong}: {answer}");
    }
    let right = ask(
        "/v1/sessions",
        &format!("authorization: Bearer {TOKEN}\r\n"),
    );
    assert!(right.starts_with("HTTP/1.1 200 "), "{right}");
    assert!(served.stop().is_empty());
}

#[test]
fn a_web_page_of_elsewhere_gets_nothing() {
    let served =
        ServedHost::with(|settings| settings.origins = vec!["https://ours.example".to_owned()]);
    let port = served.address.port();
    let ask = |host: &str, more: &str| {
        let text = format!(
            "GET /v1/sessions HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n{more}\r\n"
        );
        served.raw(text.as_bytes())
    };
    for (host, more, status, code) in [
        ("evil.example", "", 421, "wrong-host"),
        ("127.0.0.1.evil.example", "", 421, "wrong-host"),
        ("localhost:1", "", 421, "wrong-host"),
        (
            "localhost",
            "origin: https://evil.example\r\n",
            403,
            "wrong-origin",
        ),
        ("localhost", "origin: null\r\n", 403, "wrong-origin"),
        ("localhost", "host: localhost\r\n", 400, "bad-host"),
    ] {
        let answer = ask(host, more);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{host}: {answer}"
        );
        assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{answer}");
    }
    for host in [
        "localhost".to_owned(),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
    ] {
        let answer = ask(&host, "origin: https://ours.example\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
    }
}

/// A request, more header lines, and how it is refused; a response to HEAD has no code.
const REFUSALS: &[(&str, &str, &str, &str, u16, &str)] = &[
    ("GET", "/v1/nothing", "", "", 404, "unknown"),
    (
        "GET",
        "/v1/sessions/0123456789abcdef",
        "",
        "",
        404,
        "unknown",
    ),
    ("DELETE", "/v1/clients/nobody", "", "", 404, "unknown"),
    ("POST", "/v1/clients/nobody/renew", "", "", 404, "unknown"),
    ("GET", "/v1/clients/nobody/attach", "", "", 404, "unknown"),
    ("POST", "/v1/calls/7/abort", "", "", 404, "unknown"),
    ("GET", "/v1/scopes/7", "", "", 404, "unknown"),
    ("PUT", "/v1/sessions", "", "", 405, "wrong-method"),
    ("HEAD", "/v1/clients/nobody/attach", "", "", 405, ""),
    (
        "GET",
        "/v1/sessions",
        "",
        "accept: text/html\r\n",
        406,
        "not-acceptable",
    ),
    ("GET", "/v1/sessions/%ff", "", "", 400, "bad-path"),
    ("POST", "/v1/sessions", "{", "", 400, "bad-json"),
    ("POST", "/v1/sessions", DEEP, "", 422, "bad-request"),
    ("POST", "/v1/sessions", "", "", 422, "bad-request"),
    (
        "POST",
        "/v1/sessions",
        "{\"program\":\"perl\"}",
        "",
        422,
        "bad-request",
    ),
    (
        "POST",
        "/v1/sessions",
        "{\"program\":\"bash\",\"colour\":1}",
        "",
        422,
        "bad-request",
    ),
    (
        "POST",
        "/v1/sessions",
        "{\"program\":\"bash\",\"client\":\"nobody\"}",
        "",
        404,
        "unknown",
    ),
    (
        "POST",
        "/v1/sessions",
        "{\"program\":\"bash\",\"environment\":{\"A=B\":\"\"}}",
        "",
        422,
        "bad-request",
    ),
    (
        "POST",
        "/v1/clients",
        "{\"lease_seconds\":-1}",
        "",
        422,
        "bad-request",
    ),
    (
        "POST",
        "/v1/archive",
        "{\"files\":[\"/etc/passwd\"],\"to\":\"/tmp/x\"}",
        "",
        403,
        "outside-roots",
    ),
    (
        "POST",
        "/v1/scopes",
        "{\"name\":\"a\",\"root\":\"/etc\"}",
        "",
        403,
        "outside-roots",
    ),
];
/// A placeholder for a deeply nested body.
const DEEP: &str = "deep";

#[test]
fn every_refusal_has_its_status_and_its_word() {
    let served = ServedHost::start();
    let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
    for (method, path, body, more, status, code) in REFUSALS {
        let body = if *body == DEEP { &*deep } else { body };
        let answer = served.send_with(method, path, body, more);
        assert_eq!(answer.status, *status, "{method} {path} {body}: {answer:?}");
        if !code.is_empty() {
            assert_eq!(answer.code(), *code, "{answer:?}");
        }
        assert_eq!(
            answer.head.contains("\r\nallow: "),
            *status == 405,
            "{answer:?}"
        );
    }
    let place = served.send(
        "POST",
        "/v1/sessions",
        "{\"program\":\"bash\",\"limits\":{\"processes\":\"x\"}}",
    );
    assert_eq!(place.json()["path"], "limits.processes", "{place:?}");
    let plain = served.raw(
        format!("POST /v1/clients HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: text/plain\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}").as_bytes(),
    );
    assert!(plain.starts_with("HTTP/1.1 415 "), "{plain}");
    assert!(served.stop().is_empty());
}

#[test]
fn the_description_and_the_metrics_are_pages() {
    let served = ServedHost::start();
    let description = served.send("GET", "/v1/openapi.json", "");
    assert_eq!(description.json()["openapi"], "3.1.0");
    assert!(description.json()["paths"]["/v1/sessions/{id}/exec"]["post"].is_object());
    let metrics = served.send("GET", "/metrics", "");
    assert!(
        metrics.head.contains("text/plain; version=0.0.4"),
        "{metrics:?}"
    );
    for name in [
        "process_open_fds ",
        "process_max_fds ",
        "fdguard_host_sessions 0",
        "fdguard_host_sessions_max 32",
        "fdguard_host_http_requests_total{code=\"2xx\"} ",
    ] {
        let found = metrics.body.lines().any(|line| line.starts_with(name));
        assert!(found, "{name}: {}", metrics.body);
    }
}

#[test]
fn a_refusal_says_nothing_of_what_the_body_held() {
    let served = ServedHost::start();
    for body in [
        r#"{"program":"hunter2"}"#,
        r#"{"program":"bash","limits":{"processes":"hunter2"}}"#,
        r#"{"program":"bash","limits":"hunter2"}"#,
        r#""hunter2""#,
        r#"{"program":"bash","environment":["hunter2"]}"#,
    ] {
        let answer = served.send("POST", "/v1/sessions", body);
        assert_eq!(answer.status, 422, "{answer:?}");
        assert!(!answer.body.contains("hunter2"), "{answer:?}");
    }
}

#[test]
fn two_tokens_and_a_port_with_a_sign_are_refused() {
    let served = ServedHost::start();
    let more = "authorization: Bearer wrong-wrong-wrong-wrong\r\n";
    let answer = served.send_with("GET", "/v1/sessions", "", more);
    assert_eq!((answer.status, answer.code().as_str()), (401, "no-token"));
    let same = format!("authorization: Bearer {TOKEN}\r\n");
    let answer = served.send_with("GET", "/v1/sessions", "", &same);
    assert_eq!(answer.status, 401, "{answer:?}");
    let port = served.address.port();
    let request =
        format!("GET /v1/health HTTP/1.1\r\nhost: 127.0.0.1:+{port}\r\nconnection: close\r\n\r\n");
    let answer = served.raw(request.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
}
