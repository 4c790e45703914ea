//! Files named on a command line: no command reads one without a limit.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use super::{CommandOutput, fdguard};

/// Every command that takes a file, with the file as the last argument, and its exit code.
const COMMANDS: [(&[&str], i32); 15] = [
    (&["explain"], 2),
    (&["explain", "--list", "--playbook"], 2),
    (&["snap", "--from"], 2),
    (&["diff", "/dev/zero"], 2),
    (&["watch", "1", "--for", "1s", "--config"], 2),
    (&["watch", "1", "--for", "1s", "--playbook"], 2),
    (&["watch", "--from"], 2),
    (&["doctor", "--from"], 2),
    (&["doctor", "1", "--log"], 2),
    (&["check", "--scenario"], 2),
    (&["check", "--exercise", "true", "--baseline"], 2),
    (&["unit", "--lint"], 2),
    (&["run", "--config"], 78),
    (&["inspect"], 3),
    (&["archive", "--to", "/tmp"], 3),
];

/// With enough memory for a command, but not for an endless file.
fn bounded(words: &[&str], file: &Path) -> CommandOutput {
    let mut command = Command::new("sh");
    let limit = format!("ulimit -v {}; exec \"$@\"", 2 << 20);
    command.args(["-c", &limit, "sh"]);
    command.arg(fdguard().get_program()).args(words).arg(file);
    if words.contains(&"--baseline") {
        command.args(["--", "true"]);
    }
    CommandOutput::of(command.output().unwrap())
}

#[test]
fn a_device_without_an_end_is_refused_in_one_line() {
    for (words, code) in COMMANDS {
        let said = bounded(words, Path::new("/dev/zero"));
        assert_eq!(said.code, code, "{words:?}: {}", said.stderr);
        let line = said.stderr.lines().next().unwrap_or_default();
        assert!(line.contains("/dev/zero"), "{words:?}: {}", said.stderr);
        assert!(
            said.stderr.lines().count() <= 2,
            "{words:?}: {}",
            said.stderr
        );
    }
}

#[test]
fn a_file_that_is_too_large_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large");
    // A sparse file: it takes no space on the disk.
    File::create(&path).unwrap().set_len(64 << 30).unwrap();
    let whole = [
        "--playbook",
        "--from",
        "--config",
        "--scenario",
        "--baseline",
        "--lint",
    ];
    let is_whole = |words: &[&str]| words.iter().any(|word| whole.contains(word));
    for (words, code) in COMMANDS {
        let is_recording = words == ["watch", "--from"] || words == ["doctor", "--from"];
        if !is_whole(words) || is_recording {
            continue;
        }
        let said = bounded(words, &path);
        assert_eq!(said.code, code, "{words:?}: {}", said.stderr);
        assert!(
            said.stderr.contains("is larger than"),
            "{words:?}: {}",
            said.stderr
        );
    }
}
