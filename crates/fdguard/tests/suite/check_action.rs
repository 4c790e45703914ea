//! The GitHub Action runs `fdguard check` through a script, which is tested here as it would run.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Runs the script of the action on a line for the shell.
fn action(command: &str, dir: &Path) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    symlink(env!("CARGO_BIN_EXE_fdguard"), dir.join("fdguard")).unwrap();
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    let mut script = Command::new(root.join("packaging/action/check"));
    script
        .env("PATH", path)
        .env("GITHUB_ACTIONS", "true")
        .env("FDGUARD_COMMAND", command)
        .env("FDGUARD_SARIF", dir.join("found.sarif"))
        .env("FDGUARD_ARGUMENTS", "--grace '100ms'")
        .current_dir(dir);
    script.output().unwrap()
}

#[test]
fn a_leftover_fails_the_job_and_is_annotated() {
    let dir = TempDir::new().unwrap();
    let said = action("sh -c 'sleep 60 >/dev/null 2>&1 &'", dir.path());
    let text = String::from_utf8_lossy(&said.stdout);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    assert!(text.contains("title=fdguard%3A leftover-process"), "{text}");
    let sarif = std::fs::read(dir.path().join("found.sarif")).unwrap();
    let sarif: serde_json::Value = serde_json::from_slice(&sarif).unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), 1, "{sarif:#}");
}

#[test]
fn quotes_of_the_command_are_those_of_the_shell() {
    let dir = TempDir::new().unwrap();
    let said = action("printf '%s;' 'two  words' \"$HOME\"'/x'", dir.path());
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    let home = std::env::var("HOME").unwrap_or_default();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(text.contains(&format!("two  words;{home}/x;")), "{text}");
}
