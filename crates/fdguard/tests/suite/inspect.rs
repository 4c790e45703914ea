//! `fdguard inspect` as its users run it.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::ScriptedProcess;

use super::{AsNobody, CommandOutput, run};

const MAKE: &str = "import sqlite3,sys\nc=sqlite3.connect(sys.argv[1],isolation_level=None)\nc.execute('PRAGMA journal_mode='+sys.argv[2])\nc.execute('CREATE TABLE t(a)')\nc.executemany('INSERT INTO t VALUES(?)',[(n,) for n in range(200)])\nc.close()";

/// The alert of TLS 1.3.
pub(crate) const ALERT: [u8; 24] = [
    0x17, 3, 3, 0, 0x13, 0x8f, 0x21, 0xc3, 0x90, 0x55, 0xe1, 0x07, 0xaa, 0x3d, 0x62, 0x9b, 0x14,
    0xf0, 0x88, 0x2c, 0x71, 0xde, 0x49, 0xb6,
];

/// A directory with the database `state.db`.
pub(crate) fn made(mode: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let status = Command::new("python3")
        .args(["-c", MAKE])
        .arg(&path)
        .arg(mode)
        .status();
    assert!(status.unwrap().success());
    (dir, path)
}

pub(crate) fn damage(path: &Path) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&ALERT, 5).unwrap();
}

fn inspect(args: &[&str], path: &Path) -> CommandOutput {
    run(std::iter::once("inspect")
        .chain(args.iter().copied())
        .chain([path.to_str().unwrap()]))
}

#[test]
fn r42_the_verdict_comes_first_and_the_next_step_last() {
    let (_dir, path) = made("wal");
    let said = inspect(&[], &path);
    assert_eq!((said.code, &*said.stderr), (0, ""), "{}", said.text());
    assert!(
        said.text()
            .starts_with(&format!("{}: healthy", path.display())),
        "{}",
        said.text()
    );
    damage(&path);
    let said = inspect(&[], &path);
    assert_eq!((said.code, &*said.stderr), (1, ""));
    let first = said.text().lines().next().unwrap();
    let wanted = "damaged: a TLS 1.3 alert (24 bytes) overwrites bytes 5..28 of the header";
    assert!(first.contains(wanted), "{first}");
    let next = said.text().split("\nnext\n").nth(1).unwrap();
    assert!(
        next.contains("fdguard inspect --heal") && next.contains("fdguard run --protect"),
        "{next}"
    );
}

#[test]
fn r42_the_document_keeps_its_promises() {
    let (dir, path) = made("delete");
    damage(&path);
    let said = inspect(&["--json"], &path);
    assert_eq!((said.code, &*said.stderr), (1, ""));
    let document = said.json();
    assert_eq!(document["schema"], "fdguard.inspection/1");
    let file = &document["files"][0];
    assert_eq!(
        (&file["kind"], &file["verdict"]),
        (&json!("sqlite"), &json!("damaged"))
    );
    let finding = &file["findings"][0];
    assert_eq!(
        (&finding["rule"], &finding["offset"], &finding["length"]),
        (&json!("tls-record"), &json!(5), &json!(24))
    );
    assert_eq!(file["sqlite"]["wal"], Value::Null);
    assert_eq!(file["writers"]["lease"], "no-writer");
    for key in [
        "path", "summary", "size", "sqlite", "holders", "next", "gaps",
    ] {
        assert!(file.get(key).is_some(), "{key}");
    }
    let output = dir.path().join("out.json");
    let said = run([
        "inspect",
        "--json",
        "-o",
        output.to_str().unwrap(),
        path.to_str().unwrap(),
    ]);
    assert_eq!((said.code, said.text()), (1, ""));
    let written: Value = serde_json::from_slice(&fs::read(output).unwrap()).unwrap();
    assert_eq!(written["files"][0]["verdict"], "damaged");
}

#[test]
fn r45_what_could_not_be_looked_at_is_3_and_no_result() {
    let (dir, path) = made("delete");
    let none = dir.path().join("none.db");
    let said = inspect(&[], &none);
    assert_eq!((said.code, said.text()), (3, ""));
    assert!(
        said.stderr.contains("none.db") && said.stderr.lines().count() == 2,
        "{}",
        said.stderr
    );
    // A readable file is reported even if another one is not.
    let said = run([
        "inspect",
        none.to_str().unwrap(),
        path.to_str().unwrap(),
        "--json",
    ]);
    assert_eq!(said.code, 3);
    let document = said.json();
    assert_eq!(
        (
            document["files"].as_array().unwrap().len(),
            document["gaps"].as_array().unwrap().len()
        ),
        (1, 1)
    );
}

#[test]
fn a_dir_means_the_databases_in_it() {
    let (dir, path) = made("wal");
    fs::copy(&path, dir.path().join("other.sqlite")).unwrap();
    fs::write(dir.path().join("notes.txt"), "nothing here\n").unwrap();
    damage(&path);
    let document = inspect(&["--json"], dir.path()).json();
    let told: Vec<_> = document["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["verdict"].clone())
        .collect();
    assert_eq!(told, ["healthy", "damaged"]);
    let empty = tempfile::tempdir().unwrap();
    let said = inspect(&[], empty.path());
    assert_eq!((said.code, said.text()), (3, ""));
}

#[test]
fn r45_heal_makes_it_whole_and_says_where_the_backup_is() {
    let (dir, path) = made("wal");
    let whole = fs::read(&path).unwrap();
    damage(&path);
    let damaged = fs::read(&path).unwrap();
    let said = inspect(&["--heal", "--dry-run"], &path);
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(said.text().contains("would work"), "{}", said.text());
    assert_eq!(fs::read(&path).unwrap(), damaged);
    let said = inspect(&["--heal"], &path);
    assert_eq!((said.code, &*said.stderr), (0, ""), "{}", said.text());
    assert!(
        said.text().contains("state.db.fdguard-backups"),
        "{}",
        said.text()
    );
    assert_eq!(fs::read(&path).unwrap()[20..], whole[20..]);
    let backups = dir.path().join("state.db.fdguard-backups");
    let backup = fs::read_dir(backups)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert_eq!(fs::read(backup.join("database")).unwrap(), damaged);
    assert_eq!(inspect(&[], &path).code, 0);
    assert_eq!(inspect(&["--heal"], &path).code, 0, "nothing to heal");
}

#[test]
fn r45_a_refusal_is_1_and_says_why() {
    let (_dir, path) = made("delete");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0; 400], 0).unwrap();
    drop(file);
    let before = fs::read(&path).unwrap();
    let said = inspect(&["--heal", "--json"], &path);
    assert_eq!(said.code, 1, "{}", said.stderr);
    let file = &said.json()["files"][0];
    assert_eq!(
        (&file["healed"]["outcome"], &file["healed"]["backup"]),
        (&json!("refused"), &Value::Null)
    );
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn wrong_usage_is_2() {
    let (dir, path) = made("delete");
    for args in [
        &["--dry-run"][..],
        &["--for", "5s"],
        &["--heal", "--watch"],
        &["--backup-dir", "x"],
        &["--check", "some"],
    ] {
        let said = inspect(args, &path);
        assert_eq!((said.code, said.text()), (2, ""), "{args:?}");
    }
    assert_eq!(inspect(&["--heal"], dir.path()).code, 2);
    assert_eq!(run(["inspect"]).code, 2);
}

#[test]
fn who_may_not_see_all_processes_is_told_so() {
    if !testkit::is_root() {
        testkit::skip("needs root, to look as somebody else");
        return;
    }
    let (dir, path) = made("delete");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let nobody = AsNobody::new();
    let said = nobody.run(&["inspect", "--json", path.to_str().unwrap()]);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    let file = &said.json()["files"][0];
    assert_eq!(file["writers"]["lease"], "denied");
    assert_eq!(file["holders"]["is_complete"], false);
    let gaps = file["gaps"].to_string();
    assert!(
        gaps.contains("permission denied") && gaps.contains("sudo"),
        "{gaps}"
    );
    // It is unknown whether a process holds it, so it is not touched.
    damage(&path);
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    let said = nobody.run(&["inspect", "--heal", path.to_str().unwrap()]);
    assert_eq!(said.code, 3, "{}{}", said.text(), said.stderr);
    fs::set_permissions(&path, Permissions::from_mode(0o0)).unwrap();
    let said = nobody.run(&["inspect", path.to_str().unwrap()]);
    assert_eq!((said.code, said.text()), (3, ""));
}

#[test]
fn r44_a_holder_that_may_not_be_read_is_named_by_its_locks() {
    if !testkit::is_root() {
        testkit::skip("needs root, to look as somebody else");
        return;
    }
    let (dir, path) = made("wal");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let script = "import sqlite3,sys\nc=sqlite3.connect(sys.argv[1])\nc.execute('SELECT count(*) FROM t').fetchall()\nprint('ready',flush=True)\nsys.stdin.read()";
    let child = ScriptedProcess::python(script, &path);
    let said = AsNobody::new().run(&["inspect", "--json", path.to_str().unwrap()]);
    assert_eq!((said.code, &*said.stderr), (0, ""), "{}", said.text());
    let process = &said.json()["files"][0]["holders"]["processes"][0];
    assert_eq!(
        (&process["pid"], &process["locks"]["shared"]),
        (&json!(child.id()), &json!(true)),
        "{process:#}"
    );
    drop(child);
}
