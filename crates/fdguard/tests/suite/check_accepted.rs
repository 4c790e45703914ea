//! `fdguard check` and `trace`: accepted findings, and exit codes for unreadable files.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{CommandOutput, fdguard};

fn victim() -> PathBuf {
    let flags = ["-O1", "-g", "-pthread", "-fno-optimize-sibling-calls"];
    testkit::c_variant("hazards", "O1", &flags).expect("a victim that compiles")
}

fn line(mark: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/c/hazards.c");
    let text = std::fs::read_to_string(path).unwrap();
    let mark = format!("/* {mark} */");
    text.lines().position(|line| line.contains(&mark)).unwrap() + 1
}

/// Runs `fdguard COMMAND FLAGS -- hazards double-close-threaded` in this directory.
fn run(dir: &Path, command: &str, flags: &[&str]) -> CommandOutput {
    let mut fdguard = fdguard();
    fdguard.current_dir(dir).arg(command).args(flags).arg("--");
    let output = fdguard
        .arg(victim())
        .arg("double-close-threaded")
        .arg(dir)
        .output();
    CommandOutput::of(output.unwrap())
}

fn stdout(said: &CommandOutput) -> String {
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// The document of `--json`.
fn document(said: &CommandOutput) -> Value {
    let text = stdout(said);
    let last = text.lines().last();
    let last = last.unwrap_or_else(|| panic!("nothing but {}", said.stderr));
    serde_json::from_str(last).unwrap()
}

#[test]
fn r40_the_text_of_a_check_names_everybody_who_took_part_with_their_lines() {
    let dir = tempfile::tempdir().unwrap();
    let said = run(dir.path(), "check", &[]);
    assert_eq!(said.code, 1);
    for (who, mark) in [
        ("opened by", "JOURNAL"),
        ("closed by", "SECOND"),
        ("also closed by", "FIRST"),
    ] {
        let place = format!("hazards.c:{}", line(mark));
        let is_told = |line: &str| line.trim_start().starts_with(who) && line.contains(&place);
        assert!(
            said.stderr.lines().any(is_told),
            "{who} {place}: {}",
            said.stderr
        );
    }
}

#[test]
fn r40_a_hazard_is_accepted_by_rule_and_by_line_and_still_shown() {
    let dir = tempfile::tempdir().unwrap();
    let place = format!("hazards.c:{}", line("SECOND"));
    for command in ["check", "trace"] {
        for allow in ["double-close", &place] {
            let said = run(dir.path(), command, &["--allow", allow]);
            assert_eq!(said.code, 0, "{command} {allow}: {}", said.stderr);
            let note = format!("cleared by --allow {allow}: double-close");
            assert!(said.stderr.contains(&note), "{}", said.stderr);
        }
        let said = run(dir.path(), command, &["--allow", "lock-drop"]);
        assert_eq!(said.code, 1, "{command}");
        let note = "info: --allow lock-drop matched nothing";
        assert!(said.stderr.contains(note), "{}", said.stderr);
    }
}

#[test]
fn r40_a_hazard_is_accepted_in_the_file_and_marked_in_every_report() {
    let dir = tempfile::tempdir().unwrap();
    let config = format!(
        "[[cleared]]\nrule = \"double-close\"\nline = \"hazards.c:{}\"\nreason = \"known\"\ndate = 2026-01-01\n\n\
         [[cleared]]\nrule = \"leak\"\nreason = \"a cache\"\ndate = 2026-01-01\n",
        line("SECOND")
    );
    std::fs::write(dir.path().join("fdguard.toml"), config).unwrap();
    let flags = [
        "--junit",
        "junit.xml",
        "--sarif",
        "check.sarif",
        "--annotations",
        "github",
    ];
    let said = run(dir.path(), "check", &flags);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let unused = "[[cleared]] entry \"a cache\" matched nothing";
    assert!(said.stderr.contains(unused), "{}", said.stderr);
    let told = stdout(&said);
    assert!(
        told.contains("::notice ") && !told.contains("::error "),
        "{told}"
    );
    let sarif = std::fs::read(dir.path().join("check.sarif")).unwrap();
    let sarif: Value = serde_json::from_slice(&sarif).unwrap();
    let suppression = &sarif["runs"][0]["results"][0]["suppressions"][0];
    assert_eq!(suppression["kind"], "external");
    assert_eq!(suppression["justification"], "known");
    let junit = std::fs::read_to_string(dir.path().join("junit.xml")).unwrap();
    assert!(
        junit.contains("failures=\"0\"") && junit.contains("<skipped message=\"cleared: known\"/>"),
        "{junit}"
    );
    let said = run(dir.path(), "trace", &["--json"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let found: Value = document(&said);
    assert_eq!(found["hazards"][0]["cleared"]["reason"], "known");
}

#[test]
fn a_finding_is_accepted_by_its_rule() {
    let victim =
        testkit::c_variant("left", "O1", &["-O1", "-g", "-fno-inline", "-pthread"]).unwrap();
    let mut command = fdguard();
    command.args(["check", "--json", "--allow", "leftover-descriptor", "--"]);
    let said = CommandOutput::of(command.arg(victim).arg("one").output().unwrap());
    assert_eq!(said.code, 0, "{}", said.stderr);
    let found: Value = document(&said);
    assert_eq!(
        found["findings"][0]["cleared"]["reason"],
        "--allow leftover-descriptor"
    );
    assert_eq!(found["check"]["leftovers"][0]["judged"], "allowed");
}

#[test]
fn what_the_command_line_names_and_nobody_can_read_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    for flags in [
        ["--scenario", "nosuch.toml"],
        ["--config", "nosuch.toml"],
        ["--baseline", "nosuch/baseline.json"],
        ["--allow", "no-such-rule"],
    ] {
        let said = run(dir.path(), "check", &flags);
        assert_eq!(said.code, 2, "{flags:?}: {}", said.stderr);
        assert!(said.stderr.starts_with("fdguard: "), "{}", said.stderr);
        assert!(said.stderr.contains(flags[0]), "{}", said.stderr);
    }
}

/// Its file looks like a program made by Go's linker.
#[test]
fn a_check_of_a_go_program_says_why_there_is_no_line() {
    let dir = tempfile::tempdir().unwrap();
    let source = r#"
        #include <fcntl.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        __attribute__((section(".go.buildinfo"), used)) static const char mark[] = "go";
        int main(void) {
            for (int n = 0; n < 60; n++) {
                long fd;
                __asm__ volatile("syscall" : "=a"(fd)
                    : "0"(SYS_open), "D"("/etc/passwd"), "S"(O_RDONLY), "d"(0)
                    : "rcx", "r11", "memory");
                usleep(100000);
            }
        }"#;
    std::fs::write(dir.path().join("go.c"), source).unwrap();
    let mut compiler = std::process::Command::new("cc");
    compiler
        .current_dir(dir.path())
        .args(["-O1", "-o", "go", "go.c"]);
    assert!(compiler.status().unwrap().success());
    let mut command = fdguard();
    command
        .current_dir(dir.path())
        .args(["check", "--json", "--", "./go"]);
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!(said.code, 1, "{} {}", stdout(&said), said.stderr);
    let found: Value = document(&said);
    if said.stderr.contains("tracing by the kernel") {
        let culprit = &found["findings"][0]["origin"]["culprit"];
        assert_eq!(culprit["function"], "main", "{found:#}");
        return;
    }
    let gaps = found["gaps"].as_array().unwrap();
    let is_go = |gap: &&Value| gap["why"].as_str().unwrap().starts_with("Go programs");
    let gap: Vec<&Value> = gaps.iter().filter(is_go).collect();
    assert_eq!(gap.len(), 1, "{gaps:#?}");
    assert!(
        gap[0]["remedy"].as_str().unwrap().contains("fdguard watch"),
        "{gaps:#?}"
    );
}
