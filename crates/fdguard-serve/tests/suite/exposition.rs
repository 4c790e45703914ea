//! The page of metrics of a running server, read by the parsers of others.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::harness::{Server, answer, leaker_named};

/// A page, in the form that a scraper with this header gets.
fn page(server: &Server, accept: &str) -> String {
    let mut stream = TcpStream::connect(server.address).unwrap();
    let host = server.address;
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let (status, _, text) = answer(&mut stream);
    assert_eq!(status, 200, "{text}");
    text
}

/// What a program says of a text; it must accept it.
fn accepted(mut command: Command, text: &str) -> Vec<u8> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && why.is_empty(), "{why}\n{text}");
    output.stdout
}

/// Prints the families with their samples, read by the client library of Prometheus.
const PARSE: &str = r#"
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
families = text_string_to_metric_families(sys.stdin.read())
print(json.dumps({one.name: {"type": one.type, "samples": [[it.name, it.labels, it.value] for it in one.samples]}
                  for one in families}))
"#;

fn parse(python: &Path, text: &str) -> Value {
    let mut command = Command::new(python);
    command.args(["-c", PARSE]);
    serde_json::from_slice(&accepted(command, text)).unwrap()
}

#[test]
fn the_client_library_of_prometheus_and_promtool_read_the_pages_of_a_live_server() {
    let Some(python) = testkit::software("venv/bin/python") else {
        return;
    };
    // A name that must be escaped; the kernel keeps fifteen bytes.
    let number = std::process::id();
    let name = format!("q\"\\\n{number}");
    let escaped = format!("service=\"q\\\"\\\\\\n{number}\"");
    let server = Server::with(|options| options.web.public_metrics = true);
    let mut victim = leaker_named(&name).nofile(60).start();
    victim.tell("54 file");
    let open_metrics = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let text = testkit::wait_for("the finding", || {
        let text = page(&server, open_metrics);
        // A scan may have come while the victim opened them.
        let has_it = |line: &str| {
            let value = line.rsplit(' ').next().and_then(|value| value.parse().ok());
            let is_its = line.starts_with("fdguard_process_open_fds{") && line.contains(&escaped);
            is_its && value >= Some(54.0)
        };
        text.lines().any(has_it).then_some(text)
    });
    let families = parse(&python, &text);
    let ticks = &families["fdguard_serve_ticks"];
    assert_eq!(ticks["type"], "counter");
    assert_eq!(ticks["samples"][0][0], "fdguard_serve_ticks_total");
    let own = |family: &str| {
        let samples = families[family]["samples"].as_array().unwrap().iter();
        let mut own = samples.filter(|one| one[1]["service"] == name.as_str());
        own.next().unwrap_or_else(|| panic!("{family}: {text}"))[2].clone()
    };
    assert_eq!(own("fdguard_fd_limit"), 60.0);
    assert!(own("fdguard_process_open_fds").as_f64() >= Some(54.0));
    if !testkit::have("promtool") {
        return testkit::skip("no promtool: testkit/packages installs it");
    }
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]);
    let plain = page(&server, "text/plain");
    assert!(!plain.contains("# EOF"));
    accepted(promtool, &plain);
    victim.finish();
}
