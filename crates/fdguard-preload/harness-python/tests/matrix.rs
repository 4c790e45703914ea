//! The walk in every interpreter on this machine.
#![expect(clippy::expect_used, reason = "tests panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::skip;

const HARNESS: &str = env!("CARGO_MANIFEST_DIR");

/// The library that the test build produced.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let dir = test.parent().expect("it is in a folder");
    dir.join("libharness_python.so")
}

/// pyenv's interpreter of that minor version, if there is one.
fn interpreter(minor: &str) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv"));
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from).or(home)?;
    let prefix = format!("{minor}.");
    let mut found = std::fs::read_dir(root.join("versions"))
        .ok()?
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path().join("bin/python"))
        .collect::<Vec<_>>();
    found.sort();
    found.pop()
}

fn run(python: &Path, words: &[&str]) -> Output {
    Command::new(python)
        .arg(Path::new(HARNESS).join("cases.py"))
        .arg(library())
        .args(words)
        .output()
        .expect("the interpreter starts")
}

fn assert_success(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(status.success(), "{status}: {said}{complained}");
}

fn all_cases(minor: &str) {
    match interpreter(minor) {
        Some(python) => assert_success(&run(&python, &[])),
        None => skip(&format!("no Python {minor} in pyenv")),
    }
}

#[test]
fn frames_are_those_that_python_3_9_names() {
    all_cases("3.9");
}

#[test]
fn frames_are_those_that_python_3_10_names() {
    all_cases("3.10");
}

#[test]
fn frames_are_those_that_python_3_11_names() {
    all_cases("3.11");
}

#[test]
fn frames_are_those_that_python_3_12_names() {
    all_cases("3.12");
}

#[test]
fn frames_are_those_that_python_3_13_names() {
    all_cases("3.13");
}

/// Debian links the interpreter into the executable.
#[test]
fn frames_are_those_that_a_static_python_names() {
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        skip("no /usr/bin/python3");
        return;
    }
    let refusal = run(python, &["refusal"]).stdout;
    match refusal.trim_ascii() {
        b"0" => assert_success(&run(python, &[])),
        other => skip(&format!("refused: {}", String::from_utf8_lossy(other))),
    }
}

#[test]
fn versions_that_are_too_old_are_refused() {
    for minor in ["3.6", "3.7", "3.8"] {
        let Some(python) = interpreter(minor) else {
            skip(&format!("no Python {minor} in pyenv"));
            continue;
        };
        let said = run(&python, &["refusal"]);
        assert_eq!(said.stdout.trim_ascii(), b"3", "{minor}: {said:?}");
    }
}

#[test]
fn an_end_while_daemon_threads_walk_is_no_crash() {
    for minor in ["3.9", "3.10", "3.11", "3.12", "3.13"] {
        let Some(python) = interpreter(minor) else {
            skip(&format!("no Python {minor} in pyenv"));
            continue;
        };
        for _ in 0..10 {
            assert_success(&run(&python, &["daemons"]));
        }
    }
}

#[test]
fn the_table_is_what_the_headers_say() {
    let minors = ["3.9", "3.10", "3.11", "3.12", "3.13"];
    if let Some(minor) = minors.iter().find(|minor| interpreter(minor).is_none()) {
        skip(&format!("no Python {minor} in pyenv"));
        return;
    }
    let script = Path::new(HARNESS).join("../../fdguard-wire/src/python/offsets.py");
    let check = Command::new("python3").arg(script).arg("--check").output();
    assert_success(&check.expect("python3 starts"));
}

#[test]
fn nothing_in_the_walk_can_panic_or_allocate() {
    let object = library().with_file_name("no_panic.o");
    let wire = object.with_file_name("libno_panic_wire.rlib");
    let compile = |words: &[&str], output: &Path, source: &str| {
        let compiled = Command::new("rustc")
            .args(["--edition", "2024", "-O"])
            .args(["-C", "panic=abort", "-C", "codegen-units=1", "-o"])
            .arg(output)
            .args(words)
            .arg(Path::new(HARNESS).join(source))
            .output();
        assert_success(&compiled.expect("rustc starts"));
    };
    let library = ["--crate-name", "fdguard_wire", "--crate-type", "rlib"];
    compile(&library, &wire, "../../fdguard-wire/src/lib.rs");
    let wire = format!("fdguard_wire={}", wire.display());
    let bare = [
        "--crate-type",
        "staticlib",
        "--emit",
        "obj",
        "--extern",
        &wire,
    ];
    compile(&bare, &object, "no_panic.rs");
    let symbols = Command::new("nm").arg("-u").arg(&object).output();
    let symbols = symbols.expect("nm starts").stdout;
    let symbols = String::from_utf8_lossy(&symbols);
    let names: Vec<&str> = symbols
        .split_whitespace()
        .filter(|word| *word != "U")
        .collect();
    assert!(names.contains(&"dlsym"), "{names:?}");
    // The compiler emits these for copies and comparisons; none of them allocates.
    let harmless = [
        "dlsym", "memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen",
    ];
    let others: Vec<_> = names
        .iter()
        .filter(|name| !harmless.contains(name))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}
