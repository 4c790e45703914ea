//! Help, version, completions.

use super::run;

#[test]
fn every_command_helps_with_examples() {
    for command in ["snap", "diff", "top", "watch", "explain"] {
        let said = run([command, "--help"]);
        assert_eq!((said.code, &*said.stderr), (0, ""), "{command}");
        assert!(said.text().contains("Examples:"), "{}", said.text());
        assert!(
            said.text().contains(&format!("fdguard {command}")),
            "{command}"
        );
        assert!(!run([command, "-h"]).text().is_empty());
    }
    let said = run(["--help"]);
    for word in [
        "snap",
        "diff",
        "top",
        "watch",
        "explain",
        "completions",
        "Exit codes",
    ] {
        assert!(said.text().contains(word), "{word}");
    }
    assert!(run(["--version"]).text().starts_with("fdguard "));
}

#[test]
fn every_shell_has_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = run(["completions", shell]);
        assert_eq!((said.code, &*said.stderr), (0, ""), "{shell}");
        assert!(said.text().contains("fdguard"), "{shell}");
        assert!(said.text().contains("snap"), "{shell}");
    }
}

#[test]
fn the_completions_for_bash_are_read_by_bash() {
    if !testkit::have("bash") {
        return testkit::skip("needs bash");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fdguard.bash");
    std::fs::write(&path, run(["completions", "bash"]).stdout).unwrap();
    let status = std::process::Command::new("bash")
        .arg("-n")
        .arg(&path)
        .status();
    assert!(status.unwrap().success());
}
