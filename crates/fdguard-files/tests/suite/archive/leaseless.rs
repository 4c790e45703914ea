//! Without leases: a search of all processes that reports what it cannot examine.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fdguard_files::Archive;
use serde_json::{Value, json};
use testkit::{NOBODY, ScriptedProcess, have, is_root, skip};

use super::Place;

const FILE: &str = "FDGUARD_TEST_ARCHIVE_FILE";
const TO: &str = "FDGUARD_TEST_ARCHIVE_TO";
const TRUST: &str = "FDGUARD_TEST_ARCHIVE_TRUST";
const OTHER: u32 = 12_345;

#[test]
#[ignore = "is the process that the tests below start with fewer rights"]
fn lesser() {
    let Some(file) = env::var_os(FILE) else {
        return skip("no role was given");
    };
    let to = env::var_os(TO).unwrap();
    let archive = Archive {
        wait: Duration::ZERO,
        trust_scan: env::var_os(TRUST).is_some(),
        ..Archive::new(&to)
    };
    let report = archive.run(&[PathBuf::from(file)]);
    let json = serde_json::to_string(&report.files[0]).unwrap();
    fs::write(Path::new(&to).join("receipt"), json).unwrap();
}

/// Archives in a process started with this command prefix, with fewer privileges; returns its
/// receipt.
fn receipt(place: &Place, path: &Path, rights: &[&str], trusts: bool) -> Value {
    // The build may be in a directory that only its owner can access.
    let copy = tempfile::tempdir().unwrap();
    fs::set_permissions(copy.path(), Permissions::from_mode(0o755)).unwrap();
    let program = copy.path().join("tests");
    let copied = Command::new("cp")
        .arg(env::current_exe().unwrap())
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let (first, others) = rights.split_first().unwrap();
    let mut command = Command::new(first);
    command
        .args(others)
        .arg(program)
        .args(["--ignored", "--exact", "suite::archive::leaseless::lesser"])
        .env(FILE, path)
        .env(TO, place.to.path());
    if trusts {
        command.env(TRUST, "1");
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
    let written = fs::read(place.to.path().join("receipt")).unwrap();
    serde_json::from_slice(&written).unwrap()
}

/// A file of another user, in directories that these users may write.
fn of_another(uid: u32) -> Option<(Place, PathBuf)> {
    if !is_root() || !have("setpriv") {
        skip("needs root and setpriv");
        return None;
    }
    let place = Place::same();
    let path = place.file("a.log", "x\n");
    chown(&path, Some(OTHER), Some(OTHER)).unwrap();
    for dir in [place.logs.path(), place.to.path()] {
        chown(dir, Some(uid), Some(uid)).unwrap();
    }
    Some((place, path))
}

const NO_LEASE: [&str; 3] = ["setpriv", "--bounding-set=-lease", "--inh-caps=-lease"];
/// With its own pid namespace: more privileged processes cannot be examined.
const ALONE: [&str; 4] = ["unshare", "--pid", "--fork", "--mount-proc"];

#[test]
fn r50_without_a_lease_a_walk_over_every_process_is_the_proof_and_the_receipt_says_so() {
    let Some((place, path)) = of_another(0) else {
        return;
    };
    let script = "import sys\nf=open(sys.argv[1],'a')\nprint('ready',flush=True)\nsys.stdin.read()\nf.write('last\\n')";
    let writer = ScriptedProcess::python(script, &path);
    let refused = receipt(&place, &path, &NO_LEASE, false);
    assert_eq!(refused["error"]["kind"], "still-written", "{refused}");
    assert_eq!(refused["writers"][0]["pid"], writer.id());
    assert!(path.exists());
    drop(writer);
    let may_unshare = Command::new(ALONE[0])
        .args(&ALONE[1..])
        .arg("true")
        .status();
    if !may_unshare.is_ok_and(|status| status.success()) {
        return skip("no pid namespace can be made");
    }
    let done = receipt(&place, &path, &[&ALONE[..], &NO_LEASE].concat(), false);
    assert_eq!(
        (&done["outcome"], &done["proof"], &done["lines"]),
        (&json!("archived"), &json!("scan"), &json!(2)),
        "{done}"
    );
    let why = done["gaps"][0]["why"].as_str().unwrap();
    assert!(why.contains("belongs to another user"), "{done}");
}

#[test]
fn r50_who_may_not_see_every_process_moves_nothing_unless_told_to() {
    let Some((place, path)) = of_another(NOBODY) else {
        return;
    };
    let id = NOBODY.to_string();
    let rights = [
        "setpriv",
        &format!("--reuid={id}"),
        &format!("--regid={id}"),
        "--clear-groups",
    ];
    let refused = receipt(&place, &path, &rights, false);
    assert_eq!(refused["error"]["kind"], "unproven", "{refused}");
    assert_eq!(refused["outcome"], "kept");
    assert!(refused["gaps"].as_array().unwrap().len() > 1, "{refused}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "x\n");
    let done = receipt(&place, &path, &rights, true);
    assert_eq!(
        (&done["outcome"], &done["proof"]),
        (&json!("archived"), &json!("scan"))
    );
}

#[test]
fn what_may_not_be_read_or_moved_stays_and_says_why() {
    let Some((place, path)) = of_another(NOBODY) else {
        return;
    };
    let id = NOBODY.to_string();
    let rights = [
        "setpriv",
        &format!("--reuid={id}"),
        &format!("--regid={id}"),
        "--clear-groups",
    ];
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let unread = receipt(&place, &path, &rights, false);
    assert_eq!(
        (&unread["outcome"], &unread["error"]["kind"]),
        (&json!("not-seen"), &json!("unreadable"))
    );
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(place.logs.path(), Permissions::from_mode(0o755)).unwrap();
    chown(place.logs.path(), Some(0), Some(0)).unwrap();
    let unmoved = receipt(&place, &path, &rights, false);
    assert_eq!(
        (&unmoved["outcome"], &unmoved["error"]["kind"]),
        (&json!("kept"), &json!("permission"))
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "x\n");
}
