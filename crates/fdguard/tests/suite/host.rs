//! `fdguard host`: the real command, its sockets, its token and its end.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::hosted::{Hosted, LONG};
use super::{fdguard, run};

fn is_gone(pid: u64) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn python_comes_from_an_interpreter_that_the_host_keeps_warm() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    let mut command = fdguard();
    command
        .args(["host", "--log-format", "json", "--listen", "127.0.0.1:0"])
        .arg("--token-file")
        .arg(&token);
    let mut hosted = Hosted::of(command, dir, token);
    let warm = testkit::wait_for("a warm interpreter", || {
        let (status, health) = hosted.ask("GET", "/v1/health", "");
        assert_eq!(status, 200, "{health}");
        (health["warm"]["ready"] == true).then(|| health["warm"].clone())
    });
    assert_eq!(warm, json!({"ready": true, "trouble": null}));
    let (status, session) = hosted.ask("POST", "/v1/sessions", r#"{"program": "python"}"#);
    assert_eq!(status, 201, "{session}");
    // Forked and not started: a cold one has the driver in its command line.
    let pid = session["pid"].as_u64().unwrap();
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let words = String::from_utf8_lossy(&words);
    assert!(!words.contains("_fdguard_drive(3, b'"), "{words}");
    hosted.signal(Signal::TERM);
    assert_eq!(hosted.end(), Some(0));
    assert!(is_gone(pid));
}

#[test]
fn term_ends_every_session_with_a_receipt_and_nothing_is_left() {
    let mut hosted = Hosted::start(&["--listen", "127.0.0.1:0"]);
    let mut pids = Vec::new();
    for _ in 0..3 {
        let (status, session) = hosted.ask(
            "POST",
            "/v1/sessions",
            r#"{"program":"bash","ready_within_ms":20000}"#,
        );
        assert_eq!(status, 201, "{session}");
        pids.push(session["pid"].as_u64().unwrap());
        let path = format!("/v1/sessions/{}/exec", session["id"].as_str().unwrap());
        let (status, done) = hosted.ask(
            "POST",
            &path,
            r#"{"code":"sleep 1000 & echo $!","timeout_ms":20000}"#,
        );
        assert_eq!(status, 200, "{done}");
        let sleeper = done["stdout"]["text"].as_str().unwrap();
        let sleeper = sleeper.lines().find_map(|line| line.trim().parse().ok());
        pids.push(sleeper.unwrap_or_else(|| panic!("{done}")));
    }
    hosted.signal(Signal::TERM);
    assert_eq!(hosted.end(), Some(0), "{:?}", hosted.events());
    let events = hosted.events();
    let closed: Vec<_> = events
        .iter()
        .filter(|event| event["event"] == "session_close")
        .collect();
    assert_eq!(closed.len(), 3, "{events:?}");
    for event in closed {
        assert_eq!(
            (&event["reason"], &event["survivors"], &event["clean"]),
            (&json!("shutdown"), &json!(0), &json!(true)),
            "{event}"
        );
    }
    assert_eq!(events.last().unwrap()["event"], "host_end", "{events:?}");
    let left: Vec<_> = pids.into_iter().filter(|pid| !is_gone(*pid)).collect();
    assert_eq!(left, Vec::<u64>::new());
}

#[test]
fn a_unix_socket_is_for_its_owner_alone_and_a_second_host_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("host.sock");
    // What a killed host left behind is replaced.
    drop(UnixListener::bind(&path).unwrap());
    let listen = format!("unix:{}", path.display());
    let mut hosted = Hosted::start(&["--listen", &listen, "--no-token"]);
    assert_eq!(hosted.at, listen);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(hosted.ask("GET", "/v1/sessions", "").0, 200);
    let said = run(["host", "--listen", &listen, "--no-token"]);
    assert_eq!(said.code, 2, "{}", said.stderr);
    let pid = hosted.child.id();
    assert!(
        said.stderr.contains(&format!("{pid}")),
        "the holder is not named: {}",
        said.stderr
    );
    assert_eq!(
        hosted.ask("GET", "/v1/sessions", "").0,
        200,
        "the first was disturbed"
    );
    hosted.signal(Signal::INT);
    assert_eq!(hosted.end(), Some(0));
    assert!(!path.exists(), "the socket's file is left");
    fs::write(&path, "precious").unwrap();
    let said = run(["host", "--listen", &listen, "--no-token"]);
    assert_eq!(said.code, 2, "{}", said.stderr);
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn the_token_is_in_a_file_of_the_owner_and_nowhere_else() {
    let hosted = Hosted::start(&["--listen", "127.0.0.1:0"]);
    let mode = fs::metadata(&hosted.token).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = fs::read_to_string(&hosted.token).unwrap();
    assert_eq!(token.trim().len(), 64);
    let events = hosted.events();
    assert!(!format!("{events:?}").contains(token.trim()), "{events:?}");
    let ready = events
        .iter()
        .find(|event| event["event"] == "host_ready")
        .unwrap();
    assert_eq!(ready["token"], hosted.token.display().to_string());
    assert_eq!(hosted.ask("GET", "/v1/sessions", "").0, 200);
    fs::write(&hosted.token, "0".repeat(64)).unwrap();
    assert_eq!(hosted.ask("GET", "/v1/sessions", "").0, 401);
}

#[test]
fn nonsense_is_one_line_and_exit_2() {
    let dir = tempfile::tempdir().unwrap();
    let open = dir.path().join("open");
    fs::write(&open, "0".repeat(64)).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let open = open.display().to_string();
    for (args, part) in [
        (
            &["--listen", "0.0.0.0:0", "--no-token"][..],
            "can be reached from other machines",
        ),
        (
            &["--listen", "0.0.0.0:0", "--allow-remote", "--no-token"],
            "--no-token is allowed only for local",
        ),
        (&["--listen", "nowhere"], "--listen"),
        (
            &["--listen", "127.0.0.1:99999"],
            "the port must be 0 to 65535",
        ),
        (&["--listen", "unix:"], "the path is missing"),
        (
            &["--root", "/no/such/folder", "--no-token"],
            "--root /no/such/folder",
        ),
        (
            &["--token-file", &open],
            "other users can open it (mode 0644)",
        ),
        (&["--max-sessions", "0"], "--max-sessions"),
        (&["--idle", "0s"], "--idle"),
        (&["--max-body", "8 parsecs"], "--max-body"),
        (&["--token-file", "/tmp/x", "--no-token"], "--no-token"),
    ] {
        let args: Vec<&str> = ["host"].iter().chain(args).copied().collect();
        let said = run(args.clone());
        assert_eq!(said.code, 2, "{args:?}: {}", said.stderr);
        let first = said.stderr.lines().next().unwrap();
        assert!(first.contains(part), "{args:?}: {first}");
    }
}

#[test]
fn the_description_is_printed_without_a_host() {
    let said = run(["host", "--openapi"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let document: Value = serde_json::from_str(said.text()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
}

#[test]
fn the_parent_hears_that_it_is_ready_and_that_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let parent = UnixDatagram::bind(&path).unwrap();
    parent.set_read_timeout(Some(LONG)).unwrap();
    let mut command = fdguard();
    command.args([
        "host",
        "--no-warm",
        "--log-format",
        "json",
        "--listen",
        "127.0.0.1:0",
        "--no-token",
    ]);
    command.env("NOTIFY_SOCKET", &path);
    let token = dir.path().join("token");
    let mut hosted = Hosted::of(command, tempfile::tempdir().unwrap(), token);
    let hear = || {
        let mut buffer = [0; 256];
        let count = parent.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    };
    assert!(hear().contains("READY=1"));
    hosted.signal(Signal::TERM);
    assert!(hear().contains("STOPPING=1"));
    assert_eq!(hosted.end(), Some(0));
}

#[test]
fn the_client_of_the_guide_runs_as_it_is_printed() {
    let page = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/replace-pexpect.md"),
    )
    .unwrap();
    let blocks: Vec<&str> = page
        .split("```python\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert_eq!(blocks.len(), 2);
    if Command::new("python3").arg("--version").output().is_err() {
        testkit::skip("no python3");
        return;
    }
    let hosted = Hosted::start(&["--listen", "127.0.0.1:0"]);
    let token = fs::read_to_string(&hosted.token).unwrap();
    let output = Command::new("python3")
        .args(["-c", &blocks.concat()])
        .env("FDGUARD_HOST_URL", &hosted.at)
        .env("FDGUARD_HOST_TOKEN", token.trim())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(said, "hello\n 1 /tmp\ntimed-out begun\n\nTrue 0\n");
    let (_, sessions) = hosted.ask("GET", "/v1/sessions", "");
    assert_eq!(sessions["sessions"], json!([]));
}
