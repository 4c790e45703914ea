//! The official MCP client, used as people do, against the built command.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::fdguard;
use super::mcp_peer::eventually;
use super::running::is_alive;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn script() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("testkit/python/mcp_client.py")
}

/// A Python with the package; `None`, and a message, without it.
fn python() -> Option<PathBuf> {
    testkit::software("mcp/bin/python")
}

#[test]
fn the_official_client_on_standard_streams() {
    let Some(python) = python() else { return };
    let ran = Command::new(python)
        .arg(script())
        .args(["stdio", env!("CARGO_BIN_EXE_fdguard")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let why = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}\n{why}");
    assert_eq!(
        said.lines().filter(|line| line.starts_with("ok ")).count(),
        12,
        "{said}"
    );
    assert!(why.contains("event=host_end how=done"), "{why}");
}

#[test]
fn the_official_client_over_http() {
    let Some(python) = python() else { return };
    let mut host = Killed(
        fdguard()
            .args(["host", "--listen", "127.0.0.1:0", "--no-warm"])
            .env("FDGUARD_HOST_TOKEN", TOKEN)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    BufReader::new(host.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.trim().rsplit(' ').next().unwrap();
    let ran = Command::new(python)
        .arg(script())
        .args(["http", &format!("{address}/mcp"), TOKEN])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let why = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}\n{why}");
    assert!(!why.contains("termination failed"), "{why}");
    let pid = host.0.id();
    let children = format!("/proc/{pid}/task/{pid}/children");
    eventually("the keepers are gone with the clients", || {
        std::fs::read_to_string(&children).is_ok_and(|text| text.trim().is_empty())
    });
}

#[test]
fn the_official_client_killed_with_9_leaves_no_process() {
    let Some(python) = python() else { return };
    let mut client = Killed(
        Command::new(python)
            .arg(script())
            .args(["hang", env!("CARGO_BIN_EXE_fdguard")])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    BufReader::new(client.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let keeper: u32 = line
        .trim()
        .strip_prefix("hanging ")
        .unwrap()
        .parse()
        .unwrap();
    let family = descendants(client.0.id());
    assert!(family.contains(&keeper), "{family:?}");
    // The host, a keeper, a shell and two sleeps.
    assert!(family.len() >= 5, "{family:?}");
    client.0.kill().unwrap();
    eventually("everything below it is gone", || {
        family.iter().all(|pid| !is_alive(*pid))
    });
}

/// All descendants of a process.
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .flatten()
    {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|it| it.parse().ok()) {
            found.push(child);
            found.extend(descendants(child));
        }
    }
    found
}

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It has ended already, mostly.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}
