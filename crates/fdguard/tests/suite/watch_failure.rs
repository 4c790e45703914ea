//! A watch that cannot begin: one line, a hint, the right code, nothing on stdout, immediately.

use std::fs;
use std::path::Path;

use serde_json::json;
use testkit::{Victim, skip};

use super::failure::{COULD_NOT_LOOK, USAGE, assert_failed, free_pid};
use super::watching::{Watching, diagnosis};
use super::{CommandOutput, fdguard, run};

#[test]
fn who_is_not_there_cannot_be_watched() {
    let pid = free_pid().to_string();
    let said = run(["watch", &pid, "--for", "1h"]);
    assert_failed(&said, COULD_NOT_LOOK);
    assert!(
        said.stderr
            .starts_with(&format!("fdguard: no process {pid}\nhint: "))
    );
    for args in [["--name", "no-such-command-here"], ["--tree", &pid]] {
        let said = run(["watch", args[0], args[1], "--for", "1h"]);
        assert_failed(&said, COULD_NOT_LOOK);
        assert!(said.stderr.contains("hint: "), "{}", said.stderr);
    }
    let victim = Victim::start("leaker");
    let both = run(["watch", &victim.pid().to_string(), &pid, "--for", "1h"]);
    assert_failed(&both, COULD_NOT_LOOK);
    victim.finish();
}

#[test]
fn a_zombie_and_a_kernel_thread_cannot_be_watched() {
    let victim = Victim::of("parent").arg("0").arg("1").start();
    let zombie = victim.line()["children"][0]["pid"].to_string();
    let said = run(["watch", &zombie, "--for", "1h"]);
    assert_failed(&said, COULD_NOT_LOOK);
    assert!(said.stderr.contains("zombie"), "{}", said.stderr);
    assert!(said.stderr.contains("hint: "), "{}", said.stderr);
    victim.finish();
    let stat = fs::read_to_string("/proc/2/stat").unwrap_or_default();
    if !stat.contains("(kthreadd)") {
        return skip("process 2 is no kernel thread here");
    }
    let said = run(["watch", "2", "--for", "1h"]);
    assert_failed(&said, COULD_NOT_LOOK);
    assert!(said.stderr.contains("kernel thread"), "{}", said.stderr);
}

#[test]
fn wrong_words_are_wrong_usage() {
    let victim = Victim::start("leaker");
    let pid = victim.pid().to_string();
    for (args, telling) in [
        (&["--every", "0"][..], "greater than zero"),
        (&["--for", "x"], "is not a time"),
        (&["--for", "0s"], "greater than zero"),
        (&["--for", "200000000000000d"], "too long"),
        (&["--every", "1s2"], "is not a time"),
        (&["--expect", "sessions=25"], "sessions=25*3"),
        (&["--expect", "=25*3"], "needs a name"),
        (
            &["--warn-at", "95", "--critical-at", "90"],
            "must not exceed",
        ),
        (&["--warn-at", "NaN"], "must be above 0"),
        (&["--critical-at", "101"], "must be above 0"),
        (&["--max", "-3"], "--max"),
        (&["--samples"], "--json"),
        (&["--format", "xml"], "xml"),
        (&["--from", "x"], "--from"),
        (&["--all"], "--all"),
    ] {
        let said = run(["watch", &pid].iter().chain(args));
        assert_failed(&said, USAGE);
        let (line, hint) = said.stderr.split_once("\nhint: ").unwrap();
        assert!(line.contains(telling), "{args:?}: {line}");
        assert!(!hint.is_empty(), "{args:?}");
    }
    let said = run(["watch"]);
    assert_failed(&said, USAGE);
    assert!(said.stderr.contains("no process given"), "{}", said.stderr);
    victim.finish();
}

fn written(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn files_with_mistakes_are_named_with_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let victim = Victim::start("leaker");
    let pid = victim.pid().to_string();
    let bad_key = written(dir, "key.toml", "[levels]\nwarnin = 70\n");
    let bad_value = written(dir, "value.toml", "\n[[cleared]]\nclass = 'nope'\n");
    let bad_playbook = written(dir, "playbook.toml", "[[advice]]\nid = 3\n");
    for (option, path, telling) in [
        ("--config", &bad_key, ["line 2", "warnin"]),
        ("--config", &bad_value, ["line ", "cleared"]),
        ("--playbook", &bad_playbook, ["line 2", "id"]),
    ] {
        let said = run(["watch", &pid, "--for", "1h", option, path]);
        assert_failed(&said, USAGE);
        for part in [&**path, telling[0], telling[1], "hint: "] {
            assert!(said.stderr.contains(part), "{part} in {}", said.stderr);
        }
    }
    for option in ["--config", "--playbook"] {
        let said = run(["watch", &pid, "--for", "1h", option, "/no/such.toml"]);
        assert_failed(&said, COULD_NOT_LOOK);
        assert!(said.stderr.contains("/no/such.toml"), "{}", said.stderr);
    }
    // The file in the working directory is read by default, and its errors are reported, too.
    written(dir, "fdguard.toml", "[level]\n");
    let mut command = fdguard();
    let args = ["watch", &pid, "--for", "1h"];
    let said = CommandOutput::of(command.args(args).current_dir(dir).output().unwrap());
    assert_failed(&said, USAGE);
    assert!(
        said.stderr.contains("fdguard.toml: line 1"),
        "{}",
        said.stderr
    );
    victim.finish();
}

#[test]
fn a_playbook_that_the_settings_name_lies_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), "own.toml", "");
    let config = written(dir.path(), "settings.toml", "playbook = 'own.toml'\n");
    let victim = Victim::start("leaker");
    let said = Watching::over(&victim, &["--config", &config, "--json", "--for", "50ms"]).end();
    assert_eq!(said.stderr, "");
    diagnosis(&said);
    victim.finish();
}

#[test]
fn what_is_no_recording_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let text = written(dir.path(), "text", "hello\n");
    let empty = written(dir.path(), "empty", "");
    let snapshot = json!({"schema": "fdguard.snapshot/1"}).to_string();
    let other = written(dir.path(), "snapshot", &snapshot);
    let here = dir.path().to_str().unwrap();
    for path in [&*text, &empty, &other, here, "/no/such/file"] {
        let said = run(["watch", "--from", path]);
        assert_failed(&said, COULD_NOT_LOOK);
        assert!(said.stderr.contains(path), "{}", said.stderr);
    }
}

#[test]
fn a_place_that_cannot_be_written_is_told_before_the_watch() {
    let victim = Victim::start("leaker");
    let pid = victim.pid().to_string();
    for option in ["-o", "--record"] {
        let said = run(["watch", &pid, "--for", "1h", option, "/no/such/folder/x"]);
        assert_failed(&said, COULD_NOT_LOOK);
        assert!(said.stderr.contains("/no/such/folder/x"), "{}", said.stderr);
    }
    victim.finish();
}
