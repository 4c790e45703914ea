//! Against `valgrind --track-fds=yes`: the same descriptors are open at the end, by the same lines.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use testkit::{have, skip};

use super::{CommandOutput, fdguard};

/// How many descriptors each line (`file:line` of the victim) opened that are open at the end.
type Leaks = BTreeMap<String, usize>;

/// The innermost frame in the victim's source in each block: `at 0x…: open (open64.c:41)`,
/// `by 0x…: helper (traced.c:300)`.
fn by_valgrind(program: &Path, words: &[&str]) -> Leaks {
    let source = source(program);
    let output = Command::new("valgrind")
        .args(["--track-fds=yes", "-q"])
        .arg(program)
        .args(words)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut leaks = Leaks::new();
    let mut is_open = false;
    for line in said.lines() {
        let line = line.trim_start_matches(['=', ' ']);
        let line = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let line = line.trim_start_matches(['=', ' ']);
        if line.starts_with("Open ") {
            is_open = true;
        } else if line.starts_with("<inherited") || line.is_empty() {
            is_open = false;
        } else if let Some(at) = line.find(&format!("({source}:")).filter(|_| is_open) {
            let place = line[at + 1..].trim_end_matches(')');
            *leaks.entry(place.to_owned()).or_default() += 1;
            is_open = false;
        }
    }
    assert!(said.contains("Open file descriptor"), "{said}");
    leaks
}

fn by_us(program: &Path, words: &[&str]) -> Leaks {
    let source = source(program);
    let mut command = fdguard();
    command.args(["trace", "--error-exitcode", "0", "--"]);
    let said = CommandOutput::of(command.arg(program).args(words).output().unwrap());
    let sites = said
        .stderr
        .lines()
        .filter(|line| line.contains(" live of "));
    let leak = |line: &str| {
        let (live, rest) = line.split_once(" live of ").unwrap();
        let live = live.rsplit(' ').next().unwrap().parse().unwrap();
        let place = rest.split(&format!(" {source}:")).nth(1).unwrap();
        let number = place.split(' ').next().unwrap();
        (format!("{source}:{number}"), live)
    };
    let leaks: Leaks = sites.map(leak).collect();
    assert!(!leaks.is_empty(), "{}", said.stderr);
    leaks
}

/// `traced.c` of `…/traced-O2`.
fn source(program: &Path) -> String {
    let name = program.file_name().unwrap().to_str().unwrap();
    format!("{}.c", name.split('-').next().unwrap())
}

#[test]
fn r18_valgrind_finds_the_same_descriptors_and_lines() {
    if !have("valgrind") {
        return skip("needs valgrind");
    }
    let flags = ["-O2", "-g", "-fomit-frame-pointer", "-pthread"];
    let traced = testkit::c_variant("traced", "O2", &flags).unwrap();
    let drip = testkit::c_variant("drip", "O2", &["-O2", "-g"]).unwrap();
    for (program, words) in [(&traced, "leak"), (&traced, "received"), (&drip, "1")] {
        let valgrind = by_valgrind(program, &[words]);
        let us = by_us(program, &[words]);
        assert_eq!(us, valgrind, "{} {words}", program.display());
        assert!(valgrind.values().sum::<usize>() > 0);
    }
}
