//! fdguard reads the output of `lsof`, and the reverse.

use fdguard_probe::{Options, Probe, parse};
use testkit::Victim;

use super::{fdguard, snap};

#[test]
fn the_command_ends_with_3_for_a_process_that_is_not_there() {
    if std::process::Command::new("lsof")
        .arg("-v")
        .output()
        .is_err()
    {
        testkit::skip("lsof is not installed");
        return;
    }
    let mut command = fdguard();
    let output = command
        .args(["snap", "--via", "lsof", "4194304"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.starts_with("fdguard: no process 4194304\n"), "{said}");
}

/// Runs `snap --via lsof` with this script in place of lsof; returns what stderr said.
fn with_fake_lsof(script: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lsof");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let before = std::env::var("PATH").unwrap();
    let output = fdguard()
        .args(["snap", "--via", "lsof", "1"])
        .env("PATH", format!("{}:{before}", dir.path().display()))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_lsof_that_prints_forever_is_killed() {
    let said = with_fake_lsof("exec yes p1");
    let expected = "fdguard: lsof: more than 256 MiB of output: killed\n";
    assert!(said.starts_with(expected), "{said}");
}

#[test]
fn our_own_field_output_reads_back_with_the_same_numbers_and_names() {
    let victim = Victim::start("everything");
    let said = snap(victim.pid(), &["-F0", "--no-peers"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let processes = parse::lsof::parse(&said.stdout);
    assert_eq!(processes.len(), 1);
    assert_eq!(processes[0].pid(), Some(victim.pid()));
    let options = Options {
        peers: false,
        ..Options::default()
    };
    let snapshot = Probe::new()
        .unwrap()
        .snapshot(victim.pid(), options)
        .unwrap();
    let mut files = processes[0].files.iter();
    for entry in snapshot.fds.iter().flatten() {
        let file = files.next().expect("as many files as descriptors");
        assert_eq!(
            file.column(),
            Some(parse::lsof::LsofColumn::Number(entry.fd))
        );
        // With NUL-terminated fields, names are not escaped.
        let name = file.get(b'n').expect("a name");
        if let Some(path) = entry.path() {
            let mark = if entry.deleted { " (deleted)" } else { "" };
            let bare = name.strip_suffix(mark.as_bytes()).expect("the mark");
            assert_eq!(bare, path.as_bytes(), "{}", entry.fd);
        }
    }
    assert_eq!(files.next(), None);
    victim.finish();
}
