//! Programs that are built with sanitizers: they are traced as others are, and their own checks go
//! on working.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::attaching::{Attaching, Runner};
use super::tracing::line_of;
use super::{CommandOutput, fdguard};

/// A test program with a sanitizer; `None` if the compiler or the machine does not have it.
fn built(name: &str, sanitizer: &str) -> Option<PathBuf> {
    let flag = format!("-fsanitize={sanitizer}");
    let flags = ["-O1", "-g", "-pthread", &flag];
    let program = testkit::c_variant(name, sanitizer, &flags);
    let runs = |program: &PathBuf| Command::new(program).arg("leak").output().is_ok();
    let program = program.filter(runs);
    if program.is_none() {
        testkit::skip(&format!("no cc with -fsanitize={sanitizer}"));
    }
    program
}

fn fdguard_with(command: &str, options: &[&str], program: &Path, word: &str) -> CommandOutput {
    let mut all = fdguard();
    // A leak of memory at the end is the program's own finding.
    all.env("ASAN_OPTIONS", "detect_leaks=1").arg(command);
    all.args(options).arg("--").arg(program).arg(word);
    CommandOutput::of(all.output().unwrap())
}

/// The report that `-o` wrote, with the output.
fn report(command: &str, program: &Path, word: &str) -> (CommandOutput, Value) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report");
    let options = ["--json", "-o", file.to_str().unwrap()];
    let output = fdguard_with(command, &options, program, word);
    let written = std::fs::read(&file).unwrap();
    (output, serde_json::from_slice(&written).unwrap())
}

fn leaking_line(found: &Value) -> (&Value, &Value) {
    let sites = found["sites"].as_array().unwrap();
    let site = sites.iter().find(|site| site["live"] == 12);
    let site = site.unwrap_or_else(|| panic!("{found:#}"));
    (&site["culprit"]["line"], &site["opened"])
}

fn is_traced(sanitizer: &str) {
    let Some(program) = built("sanitized", sanitizer) else {
        return;
    };
    let (output, found) = report("trace", &program, "leak");
    assert_eq!(
        (output.code, output.text()),
        (0, "held\n"),
        "{}",
        output.stderr
    );
    assert_eq!(found["coverage"]["backend"], "preload", "{found:#}");
    let line = line_of("sanitized.c", "/* LEAK */");
    assert_eq!(leaking_line(&found), (&line.into(), &24.into()));
}

#[test]
fn address_sanitizer_programs_are_traced_by_the_library() {
    is_traced("address");
}

#[test]
fn undefined_behaviour_sanitizer_programs_are_traced_by_the_library() {
    is_traced("undefined");
}

#[test]
fn check_names_the_line_in_an_address_sanitizer_program() {
    let Some(program) = built("sanitized", "address") else {
        return;
    };
    let (output, found) = report("check", &program, "leak");
    assert_eq!(output.code, 1, "{}", output.stderr);
    let line = line_of("sanitized.c", "/* LEAK */");
    let culprit = &found["findings"][0]["origin"]["culprit"];
    assert_eq!(culprit["line"], line, "{found:#}");
}

#[test]
fn a_protected_address_sanitizer_program_runs_to_its_end() {
    let Some(program) = built("sanitized", "address") else {
        return;
    };
    let output = fdguard_with("run", &["--once", "--protect"], &program, "leak");
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(
        !output.stderr.contains("not protected"),
        "{}",
        output.stderr
    );
}

/// What the sanitizer finds is printed as usual, and its exit code is passed on.
#[test]
fn address_sanitizer_still_finds_what_it_looks_for() {
    let Some(program) = built("sanitized", "address") else {
        return;
    };
    for (word, finding) in [
        ("freed", "heap-use-after-free"),
        ("memory", "LeakSanitizer: detected memory leaks"),
    ] {
        let alone = Command::new(&program).arg(word).output().unwrap();
        for (command, options) in [("trace", &[][..]), ("run", &["--once", "--protect"])] {
            let output = fdguard_with(command, options, &program, word);
            assert!(
                output.stderr.contains(finding),
                "{command}: {}",
                output.stderr
            );
            assert_eq!(Some(output.code), alone.status.code(), "{command} {word}");
        }
    }
}

#[test]
fn a_child_with_address_sanitizer_is_followed() {
    let Some(program) = built("sanitized", "address") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report");
    let script = format!("{} leak; echo $?", program.display());
    let output = fdguard()
        .args(["trace", "--json", "-o"])
        .arg(&file)
        .args(["--", "sh", "-c", &script])
        .output();
    let output = CommandOutput::of(output.unwrap());
    assert_eq!(output.text(), "held\n0\n", "{}", output.stderr);
    let found: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let line = line_of("sanitized.c", "/* LEAK */");
    assert_eq!(leaking_line(&found), (&line.into(), &24.into()));
}

/// A child whose environment lacks the option starts without the library, and the gap says so.
#[test]
fn a_child_whose_options_were_removed_starts_without_the_library() {
    let Some(program) = built("sanitized", "address") else {
        return;
    };
    let script = format!("unset ASAN_OPTIONS; {} leak", program.display());
    let output = fdguard()
        .args(["trace", "--source", "launch", "--", "sh", "-c", &script])
        .output();
    let output = CommandOutput::of(output.unwrap());
    assert_eq!(
        (output.code, output.text()),
        (0, "held\n"),
        "{}",
        output.stderr
    );
    assert!(output.stderr.contains("ASAN_OPTIONS"), "{}", output.stderr);
}

#[test]
fn an_address_sanitizer_program_that_runs_is_entered() {
    let Some(program) = built("runner", "address") else {
        return;
    };
    let mut runner = Runner::of(Command::new(program).env("ASAN_OPTIONS", "detect_leaks=0"));
    let attaching = Attaching::trace(&[&runner.pid.to_string()]);
    for _ in 0..40 {
        assert!(runner.say("o").starts_with("open "));
    }
    let outcome = attaching.interrupt();
    let site = outcome.site("/* KEEP */");
    assert_eq!(site["live"], 40, "{outcome:?}");
    assert_eq!(outcome.found["coverage"]["backend"], "inject");
    runner.end();
}

/// `ThreadSanitizer` interposes the same functions with locks of its own: such a program starts
/// without the library, and one line says why.
#[test]
fn a_thread_sanitizer_program_runs_and_one_line_says_how_it_is_traced() {
    let Some(program) = built("sanitized", "thread") else {
        return;
    };
    let output = fdguard_with("trace", &["--source", "launch"], &program, "leak");
    assert!(output.stderr.contains("TSan"), "{}", output.stderr);
    let alone = Command::new(&program).arg("race").output().unwrap();
    let output = fdguard_with("trace", &[], &program, "race");
    assert_eq!(Some(output.code), alone.status.code(), "{}", output.stderr);
}
