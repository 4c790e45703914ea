//! Options of `fdguard serve` on the command line, over real connections.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;
use testkit::{Victim, VictimLaunch};

use super::serve::ServeProcess;
use super::{CommandOutput, fdguard};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that is started with tokens, and its first line.
struct TokenServer {
    child: Child,
    line: String,
}

impl TokenServer {
    fn start(state: &Path, args: &[&str]) -> Self {
        let mut child = command(state)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        Self { child, line }
    }

    /// Where it listens: `127.0.0.1:PORT`.
    fn address(&self) -> &str {
        let rest = self.line.split("://").nth(1).unwrap();
        rest.split(' ').next().unwrap()
    }

    /// The status and the body of an answer.
    fn ask(&self, request: &str, token: Option<&str>) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let token = token.map_or_else(String::new, |it| format!("Authorization: Bearer {it}\r\n"));
        let host = self.address();
        let body = "{\"reason\": \"a test\"}";
        let length = body.len();
        let head = format!("{request} HTTP/1.0\r\nHost: {host}\r\n{token}");
        write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }
}

impl Drop for TokenServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// With directories of this test instead of the user's.
fn command(dir: &Path) -> Command {
    let mut command = fdguard();
    command
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--no-evidence",
            "--every",
            "100ms",
        ])
        .arg("--state")
        .arg(dir.join("state"))
        .env("XDG_RUNTIME_DIR", dir);
    command
}

#[test]
fn without_options_the_token_is_in_a_private_file_and_nobody_may_act() {
    let dir = tempfile::tempdir().unwrap();
    let served = TokenServer::start(dir.path(), &[]);
    let file = dir.path().join("fdguard/serve.token");
    let expected = format!("(token: {})\n", file.display());
    assert!(served.line.ends_with(&expected), "{}", served.line);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = std::fs::read_to_string(&file).unwrap();
    let token = token.trim();
    assert!(!served.line.contains(token));
    let overview = "GET /api/v1/overview";
    assert_eq!(served.ask(overview, Some(token)).0, 200);
    assert_eq!(served.ask(overview, None).0, 401);
    assert_eq!(
        served.ask(overview, Some("a-wrong-token-0123456789")).0,
        401
    );
    // The right to view is not the right to act.
    let (status, body) = served.ask("POST /api/v1/findings/1/suppress", Some(token));
    let problem: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &problem["code"]),
        (403, &"no-acting".into()),
        "{body}"
    );
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("--act-token-file"),
        "{body}"
    );
}

/// A certificate for localhost, and its key.
fn certificate(dir: &Path) -> Option<[String; 2]> {
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| dir.join(name).display().to_string());
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
        ])
        .args(["-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args([
            "-addext",
            "subjectAltName=DNS:localhost",
            "-keyout",
            &key,
            "-out",
            &cert,
        ])
        .output();
    made.is_ok_and(|output| output.status.success())
        .then_some([cert, key])
}

#[test]
fn a_certificate_and_its_key_make_it_https() {
    let dir = tempfile::tempdir().unwrap();
    let Some([cert, key]) = certificate(dir.path()) else {
        return testkit::skip("openssl made no certificate");
    };
    let files = ["--tls-cert", &cert, "--tls-key", &key];
    let served = TokenServer::start(dir.path(), &files);
    assert!(
        served.line.contains("listens at https://127.0.0.1:"),
        "{}",
        served.line
    );
    let port = served.address().rsplit(':').next().unwrap();
    let curl = Command::new("curl")
        .args(["--silent", "--cacert", &cert, "--resolve"])
        .arg(format!("localhost:{port}:127.0.0.1"))
        .arg(format!("https://localhost:{port}/healthz"))
        .output();
    let Ok(curl) = curl else {
        return testkit::skip("curl is not installed");
    };
    let text = String::from_utf8(curl.stdout).unwrap();
    assert!(text.contains("fdguard.serve.health/1"), "{text}");
    // A key alone, or the key as the certificate, is refused before anything is served.
    for wrong in [
        &["--tls-key", &*key][..],
        &["--tls-cert", &*key, "--tls-key", &*cert],
    ] {
        let refused = CommandOutput::of(command(dir.path()).args(wrong).output().unwrap());
        assert_eq!(
            (refused.code, refused.text()),
            (2, ""),
            "{}",
            refused.stderr
        );
    }
}

/// A victim under this name, with this limit.
fn victim(dir: &Path, name: &str, soft: u64) -> Victim {
    let program = dir.join(name);
    std::os::unix::fs::symlink(testkit::victim_path("leaker"), &program).unwrap();
    VictimLaunch::program(&program).nofile(soft).start()
}

/// One that is near its limit.
fn suspect(dir: &Path, name: &str) -> Victim {
    let mut victim = victim(dir, name, 60);
    victim.tell("54 file");
    victim
}

fn find(overview: &Value, pid: u32, rule: &str) -> Option<Value> {
    let mut all = overview["findings"].as_array()?.iter();
    let is_it = |one: &&Value| one["finding"]["pid"] == pid && one["rule"] == rule;
    all.find(is_it).cloned()
}

#[test]
fn a_leak_that_the_configuration_clears_is_suppressed_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let [known, other] = ["kn", "ot"].map(|name| format!("{name}{}", std::process::id()));
    let config = dir.path().join("fdguard.toml");
    let text = format!(
        "[[cleared]]\nclass = \"regular\"\nowner = \"{known}\"\n\
         reason = \"a store that only grows\"\ndate = 2026-03-01\n"
    );
    std::fs::write(&config, text).unwrap();
    let options = ["--config", config.to_str().unwrap()];
    let served = ServeProcess::of(tempfile::tempdir().unwrap(), &options);
    let [mut known, mut other] = [known, other].map(|name| victim(dir.path(), &name, 20_000));
    let (opened, cleared) = testkit::wait_for("both findings", || {
        known.tell("1 file");
        other.tell("1 file");
        let overview = served.overview();
        let find = |pid| find(&overview, pid, "leak").filter(|one| one["state"] != "pending");
        find(other.pid()).zip(find(known.pid()))
    });
    assert_eq!(
        (&opened["state"], &opened["reason"]),
        (&"open".into(), &Value::Null)
    );
    assert_eq!(cleared["state"], "suppressed", "{cleared}");
    assert_eq!(cleared["reason"], "a store that only grows");
    let pids = [known.pid(), other.pid()];
    let (_, log) = served.stop();
    let reported = pids.map(|pid| {
        let mut lines = log.lines().filter(|line| line.contains("rule=leak "));
        lines.any(|line| line.contains(&format!(" pid={pid} ")))
    });
    assert_eq!(reported, [false, true], "{log}");
    known.finish();
    other.finish();
}

#[test]
fn the_log_is_json_lines_if_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("js{}", std::process::id());
    let served = ServeProcess::of(tempfile::tempdir().unwrap(), &["--log-format", "json"]);
    let victim = suspect(dir.path(), &name);
    testkit::wait_until("the finding", || {
        let found = find(&served.overview(), victim.pid(), "soft-limit-level");
        found.is_some_and(|one| one["state"] == "open")
    });
    let pid = victim.pid();
    let (_, log) = served.stop();
    victim.finish();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let event =
        |name: &str| -> Vec<&Value> { lines.iter().filter(|line| line["event"] == name).collect() };
    for once in ["serve_ready", "serve_stopping", "serve_end"] {
        assert_eq!(event(once).len(), 1, "{once}: {log}");
    }
    let mut opened = event("finding_opened").into_iter();
    let opened = opened.find(|line| line["pid"] == pid);
    let opened = opened.unwrap_or_else(|| panic!("{log}"));
    assert_eq!(
        (&opened["service"], &opened["kind"]),
        (&name.into(), &"command".into())
    );
}

/// A receiver that accepts everything: heads in lower case and bodies.
fn receiver() -> (String, Receiver<(String, Vec<u8>)>) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for mut stream in socket.incoming().flatten() {
            let request = read_request(&stream);
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
            // The test may be over.
            drop(sender.send(request));
        }
    });
    (url, requests)
}

/// The head of a request in lower case, and its body.
pub(super) fn read_request(stream: &TcpStream) -> (String, Vec<u8>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        line.make_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    drop(reader.read_exact(&mut body));
    (head, body)
}

/// The first request whose body has this text.
fn about(requests: &Receiver<(String, Vec<u8>)>, text: &str) -> (String, Vec<u8>) {
    loop {
        let (head, body) = requests.recv_timeout(PATIENCE).expect("a message");
        if String::from_utf8_lossy(&body).contains(text) {
            return (head, body);
        }
    }
}

#[test]
fn alertmanager_and_a_webhook_are_told_about_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("am{}", std::process::id());
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "a-secret-for-the-webhook\n").unwrap();
    let ((alerts_url, alerts), (hook_url, hook)) = (receiver(), receiver());
    let options = ["--alertmanager", &alerts_url, "--webhook", &hook_url];
    let options = [
        &options[..],
        &["--webhook-secret-file", secret.to_str().unwrap()],
    ]
    .concat();
    let served = ServeProcess::of(tempfile::tempdir().unwrap(), &options);
    let victim = suspect(dir.path(), &name);
    let (head, body) = about(&alerts, &name);
    assert!(
        head.starts_with("post /api/v2/alerts http/1.1\r\n"),
        "{head}"
    );
    let body: Value = serde_json::from_slice(&body).unwrap();
    let mut all = body.as_array().unwrap().iter();
    assert!(
        all.any(|one| one["labels"]["service"] == name.as_str()),
        "{body}"
    );
    let (head, body) = about(&hook, &name);
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {head}"))
            .to_owned()
    };
    let time = header("x-fdguard-timestamp: ");
    let signed = [format!("{time}.").as_bytes(), &body].concat();
    let signature = header("x-fdguard-signature: ");
    assert_eq!(
        signature,
        format!("sha256={}", hmac("a-secret-for-the-webhook", &signed))
    );
    victim.finish();
    served.stop();
}

/// HMAC-SHA256 in another implementation.
fn hmac(secret: &str, body: &[u8]) -> String {
    let script = "import hashlib, hmac, sys; \
                  print(hmac.new(sys.argv[1].encode(), sys.stdin.buffer.read(), \
                  hashlib.sha256).hexdigest())";
    let mut python = Command::new("python3")
        .args(["-c", script, secret])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(body).unwrap();
    let output = python.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn pushes_and_the_fleet_have_the_headers_of_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, line: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, line).unwrap();
        path.display().to_string()
    };
    let ((write_url, write), (otlp_url, otlp), (fleet_url, fleet)) =
        (receiver(), receiver(), receiver());
    let fleet_url = format!("{fleet_url}/prometheus");
    let [first, second, third] = [
        file("write", "X-Scope-OrgID: first\n"),
        file("otlp", "Authorization: Bearer second\n"),
        file("fleet", "X-Scope-OrgID: third\n"),
    ];
    let options = [
        ["--remote-write", &*write_url],
        ["--remote-write-header-file", &first],
        ["--otlp", &otlp_url],
        ["--otlp-header-file", &second],
        ["--fleet-from", &fleet_url],
        ["--fleet-header-file", &third],
    ];
    let served = ServeProcess::of(tempfile::tempdir().unwrap(), options.as_flattened());
    let head = |requests: &Receiver<(String, Vec<u8>)>| about(requests, "").0;
    let sent = head(&write);
    assert!(sent.starts_with("post /api/v1/write ") && sent.contains("x-scope-orgid: first\r\n"));
    let sent = head(&otlp);
    assert!(sent.starts_with("post /v1/metrics ") && sent.contains("authorization: bearer second"));
    // The receiver's answer is no answer of Prometheus.
    assert_eq!(served.get("/api/v1/fleet").0, 502);
    let sent = head(&fleet);
    assert!(sent.starts_with("post /prometheus/api/v1/query "), "{sent}");
    assert!(sent.contains("x-scope-orgid: third\r\n"), "{sent}");
    let (_, log) = served.stop();
    assert!(!log.contains("second"), "{log}");
}

#[test]
fn a_malformed_header_file_is_refused_before_anything_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("headers");
    std::fs::write(&file, "s3cret\n").unwrap();
    let file = file.to_str().unwrap();
    for (server, option) in [
        ("--remote-write", "--remote-write-header-file"),
        ("--otlp", "--otlp-header-file"),
        ("--fleet-from", "--fleet-header-file"),
    ] {
        let mut command = command(dir.path());
        command.args([server, "http://127.0.0.1:1", option, file]);
        let refused = CommandOutput::of(command.output().unwrap());
        assert_eq!(
            (refused.code, refused.text()),
            (2, ""),
            "{}",
            refused.stderr
        );
        let expected = format!("fdguard: {option} {file}: line 1 is not Name: value\n");
        assert!(refused.stderr.starts_with(&expected), "{}", refused.stderr);
        assert!(!refused.stderr.contains("s3cret"), "{}", refused.stderr);
    }
}
