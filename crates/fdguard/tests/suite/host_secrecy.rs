//! The token opens everything: no session reads it from its host.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::json;
use testkit::{NOBODY, is_root, skip};

use super::hosted::{Hosted, LONG};
use super::{AsNobody, fdguard};

const TOKEN: &str = "a-token-that-nobody-else-has-0123";
const ENOUGH: Duration = Duration::from_secs(20);

/// A host that got its token in the environment. The token file is only for this test's own
/// requests.
fn with_token_in_environment(mut command: std::process::Command, is_warm: bool) -> Hosted {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let token = dir.path().join("token");
    fs::write(&token, TOKEN).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    command.args(["--log-format", "json", "--listen", "127.0.0.1:0"]);
    if !is_warm {
        command.arg("--no-warm");
    }
    // `Hosted` removes the variable.
    let mut wrapped = std::process::Command::new("env");
    wrapped.arg(format!("FDGUARD_HOST_TOKEN={TOKEN}"));
    wrapped.arg(command.get_program()).args(command.get_args());
    wrapped.current_dir("/");
    Hosted::of(wrapped, dir, token)
}

#[test]
fn a_token_of_the_environment_is_in_no_environment_of_the_host() {
    if !is_root() {
        return skip("needs root: nobody else may look");
    }
    let mut command = fdguard();
    command.arg("host");
    let host = with_token_in_environment(command, false);
    let (status, _) = host.ask("GET", "/v1/sessions", "");
    assert_eq!(status, 200, "it is the token");
    let environment = fs::read(format!("/proc/{}/environ", host.pid())).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(!environment.contains(TOKEN), "{environment}");
    let session = host.open(&json!({"program": "bash"}));
    let id = session["id"].as_str().unwrap();
    let (_, said) = host.exec(id, "tr '\\0' '\\n' < /proc/$PPID/environ; env", ENOUGH);
    assert!(!said.to_string().contains(TOKEN), "{said}");
    assert!(!said.to_string().contains("FDGUARD_HOST_TOKEN="), "{said}");
}

#[test]
fn a_session_reads_neither_memory_nor_descriptors_of_its_host_and_keeper() {
    if !is_root() {
        return skip("needs root, to become another user");
    }
    let nobody = AsNobody::new();
    let program = nobody.command(&[]).get_program().to_owned();
    let mut command = std::process::Command::new("setpriv");
    let user = NOBODY.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    command.arg(program).arg("host");
    let host = with_token_in_environment(command, false);
    let session = host.open(&json!({"program": "bash"}));
    let id = session["id"].as_str().unwrap();
    let script = format!(
        "for pid in $PPID {}; do for file in environ mem maps fd/0 auxv; do
           head -c 1 /proc/$pid/$file >/dev/null 2>&1 && echo read $pid $file
         done; ls /proc/$pid/fd >/dev/null 2>&1 && echo listed $pid; done; echo looked",
        host.pid()
    );
    let (_, said) = host.exec(id, &script, ENOUGH);
    let output = said["stdout"]["text"].as_str().unwrap();
    assert_eq!(output.trim(), "looked", "{said}");
    // The host's own functions work: its metrics, a session, its end.
    let (status, health) = host.ask("GET", "/v1/health", "");
    assert_eq!(status, 200, "{health}");
    assert!(health["fd_count"].as_u64() > Some(0), "{health}");
    let receipt = host.close(id);
    assert_eq!(receipt["clean"], true, "{receipt}");
    // Root can still examine the host, and every user can read the count.
    let said = nobody.run(&["snap", &host.pid().to_string(), "--counts"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(!super::snap(host.pid(), &["--json"]).good_json()["tier"].is_null());
}

#[test]
fn warm_python_of_a_host_without_privilege_is_warm() {
    if !is_root() {
        return skip("needs root, to become another user");
    }
    let nobody = AsNobody::new();
    let program = nobody.command(&[]).get_program().to_owned();
    let user = NOBODY.to_string();
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    command.arg(program).arg("host");
    let host = with_token_in_environment(command, true);
    super::hosted::eventually("it is warm", LONG, || {
        let (_, health) = host.ask("GET", "/v1/health", "");
        health.to_string().contains("\"ready\":true")
    });
    let session = host.open(&json!({"program": "python"}));
    let id = session["id"].as_str().unwrap();
    let (_, said) = host.exec(id, "print(6 * 7)", ENOUGH);
    assert!(
        said["stdout"]["text"].as_str().unwrap().contains("42"),
        "{said}"
    );
}
