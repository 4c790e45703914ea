//! Java programs under `fdguard trace`: it names the lines that opened what is open, and changes
//! nothing else. Runs with every supported version of Java that is installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use testkit::{TestRuntime, have, runtimes, skip};

use super::{CommandOutput, fdguard};

const HOLDER: (&str, &str) = ("Holder", include_str!("../java/Holder.java"));
const VIRTUAL: (&str, &str) = ("Virtual", include_str!("../java/Virtual.java"));
/// Java's classes for channels and sockets open a socket pair at first use, from whichever line is
/// first.
const OWN: u32 = 3;

/// Compiles for the oldest version.
fn compile((name, text): (&str, &str)) -> Option<TempDir> {
    if !have("javac") {
        skip("needs javac");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join(format!("{name}.java"));
    fs::write(&source, text).unwrap();
    let compiled = Command::new("javac")
        .args(["--release", "11", "-g", "-d"])
        .arg(dir.path())
        .arg(&source)
        .status()
        .unwrap();
    assert!(compiled.success());
    Some(dir)
}

/// The command line that starts it.
fn words(java: &TestRuntime, dir: &Path, class: &str, options: &[&str]) -> Vec<String> {
    let mut words = vec![java.path.display().to_string(), "-Xmx64m".to_owned()];
    words.extend(options.iter().map(|option| (*option).to_owned()));
    words.extend(["-cp".to_owned(), dir.display().to_string()]);
    words.extend([format!("shop.stock.{class}"), "/etc/passwd".to_owned()]);
    words
}

/// How many descriptors all sites of this line have open.
fn live(report: &str, place: &str) -> u32 {
    let sites = report.lines().filter(|line| line.contains(" live of "));
    let of_line = sites.filter(|site| site.contains(place));
    let counts = of_line.map(|site| {
        let count = site.split(" live of ").next().unwrap();
        count.rsplit(' ').next().unwrap().parse::<u32>().unwrap()
    });
    counts.sum()
}

/// Runs the program and returns the report; each mark (`// OPENS what count`, or two counts if
/// versions differ) must be a site with that count.
fn names_every_line(
    java: &TestRuntime,
    program: (&str, &str),
    options: &[&str],
) -> Option<(CommandOutput, String)> {
    let (class, text) = program;
    let dir = compile(program)?;
    let result = dir.path().join("result");
    let output = fdguard()
        .args(["trace", "--for", "4s", "--error-exitcode", "0", "-o"])
        .arg(&result)
        .arg("--")
        .args(words(java, dir.path(), class, options))
        .output()
        .unwrap();
    let report = fs::read_to_string(result).unwrap();
    let mut marks = 0;
    for (at, line) in text.lines().enumerate() {
        let Some((_, mark)) = line.split_once("// OPENS ") else {
            continue;
        };
        let place = format!(": {class}.java:{} shop.stock.{class}", at + 1);
        let count = mark.rsplit(' ').next().unwrap();
        let found = live(&report, &place);
        let is_right = count.split('/').any(|wanted| {
            let wanted: u32 = wanted.parse().unwrap();
            found == wanted || (wanted > 0 && (wanted..=wanted + OWN).contains(&found))
        });
        assert!(
            is_right,
            "Java {}: {found} at {mark} in\n{report}",
            java.version
        );
        marks += 1;
    }
    assert!(marks > 3, "{marks}");
    assert!(!report.contains("$$Lambda"), "{report}");
    Some((CommandOutput::of(output), report))
}

fn names_every_line_of_holder(version: u32, options: &[&str]) {
    for java in runtimes("java", &[version]) {
        let Some((said, report)) = names_every_line(&java, HOLDER, options) else {
            return;
        };
        assert_eq!(
            (said.text(), &*said.stderr),
            ("opened 302\n", "and said so\n")
        );
        assert!(report.contains(" java.io.FileInputStream.<init>\n"));
    }
}

#[test]
fn java_11_lines_are_named() {
    names_every_line_of_holder(11, &[]);
}

#[test]
fn java_17_lines_are_named() {
    names_every_line_of_holder(17, &[]);
}

#[test]
fn java_21_lines_are_named() {
    names_every_line_of_holder(21, &[]);
}

#[test]
fn java_lines_are_named_in_interpreted_and_checked_code() {
    for version in [11, 17, 21] {
        names_every_line_of_holder(version, &["-Xint", "-Xcheck:jni", "-XX:+UseSerialGC"]);
    }
}

#[test]
fn java_lines_of_virtual_threads_are_named() {
    for java in runtimes("java", &[21]) {
        if let Some((said, _)) = names_every_line(&java, VIRTUAL, &[]) {
            assert_eq!((said.text(), &*said.stderr), ("opened\n", ""));
        }
    }
}

#[test]
fn a_java_program_says_and_ends_as_by_itself() {
    let Some(dir) = compile(HOLDER) else {
        return;
    };
    for java in runtimes("java", &[11, 17, 21]) {
        let mut words = words(&java, dir.path(), "Holder", &[]);
        words.push("7".to_owned());
        let (program, arguments) = words.split_first().unwrap();
        let alone = CommandOutput::of(Command::new(program).args(arguments).output().unwrap());
        assert_eq!(alone.code, 7);
        for _ in 0..3 {
            let traced = fdguard()
                .args(["trace", "-o", "/dev/null", "--"])
                .args(&words)
                .output()
                .unwrap();
            let traced = CommandOutput::of(traced);
            assert_eq!(
                (traced.code, traced.text(), &traced.stderr),
                (alone.code, alone.text(), &alone.stderr),
                "Java {}",
                java.version
            );
        }
    }
}
