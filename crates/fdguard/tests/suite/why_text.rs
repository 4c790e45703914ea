//! The answers of `--why` as text: in `trace` each line has its holders, in `check` each problem;
//! and how long the program waited for them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::{is_root, skip};

use super::run;
use super::why::started;

/// Two lines that open files which two lists hold, and a cycle.
const KEPT: &str = "
import gc
gc.disable()
class Document:
    def __init__(self):
        self.me = self
        self.text = open('/proc/self/stat')
FIRST, SECOND = [], []
for _ in range(12):
    FIRST.append(open('/proc/self/stat'))
for _ in range(7):
    SECOND.append(open('/proc/self/maps'))
for _ in range(5):
    Document()
";

/// What fdguard writes about a Python program.
fn report(arguments: &[&str], code: &str) -> (String, Option<i32>) {
    let dir = tempfile::tempdir().unwrap();
    let (script, file) = (dir.path().join("app.py"), dir.path().join("out.txt"));
    std::fs::write(&script, code).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fdguard"))
        .args(arguments)
        .arg("-o")
        .args([&file, Path::new("--"), Path::new("python3"), &script])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    (text, output.status.code())
}

/// Paragraphs are wrapped.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The three answers, without the lines that they are about.
const HOLDERS: [&str; 3] = [
    "held by 12 TextIOWrapper ← list (12 entries) ← __main__.FIRST [object]",
    "held by 7 TextIOWrapper ← list (7 entries) ← __main__.SECOND [object]",
    "only an unreachable cycle holds them: Document → TextIOWrapper; gc is off [unreachable]",
];

#[test]
fn w22_the_text_of_a_trace_has_the_holders_of_each_line() {
    if !is_root() {
        return skip("needs root");
    }
    let (text, _) = report(&["trace", "--why"], KEPT);
    let lines: Vec<&str> = text.lines().collect();
    for (what, line, holder) in [
        ("12 files opened at ", "app.py:10", HOLDERS[0]),
        ("7 files opened at ", "app.py:12", HOLDERS[1]),
        ("5 files opened at ", "app.py:7", HOLDERS[2]),
    ] {
        let mut pairs = lines.windows(2);
        let pair = pairs.find(|pair| pair[1].trim() == holder).expect(&text);
        let is_line = pair[0].starts_with(what) && pair[0].ends_with(line);
        assert!(is_line, "{holder}: {text}");
    }
}

#[test]
fn w22_the_text_of_a_check_has_the_holders_under_each_problem() {
    if !is_root() {
        return skip("needs root");
    }
    // Python itself closes nothing then.
    let code = format!("{KEPT}import os; os._exit(0)\n");
    let (text, code) = report(&["check", "--strict", "--why"], &code);
    assert_eq!(code, Some(1), "{text}");
    let text = one_line(&text);
    for holder in HOLDERS {
        assert_eq!(text.matches(holder).count(), 1, "{holder}: {text}");
    }
    // Without a problem there is nothing to explain.
    let code =
        "files = [open('/proc/self/stat') for _ in range(12)]\nfor one in files: one.close()\n";
    let (text, code) = report(&["check", "--strict", "--why"], code);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        !text.contains("held by") && !text.contains("why in"),
        "{text}"
    );
}

#[test]
fn w22_a_program_that_waits_to_be_asked_is_told_for_how_long() {
    if !is_root() {
        return skip("needs root");
    }
    let began = std::time::Instant::now();
    let (text, _) = report(&["trace", "--why"], KEPT);
    let took = began.elapsed().as_secs_f64() * 1e3;
    let (_, waited) = text.split_once(", waited ").expect(&text);
    let (waited, _) = waited.split_once(" ms in all").expect(&text);
    let waited: f64 = waited.parse().unwrap();
    assert!(waited > 0.0 && waited < took, "{waited} of {took}");
    // A program that was not started with it does not wait.
    let mut program = super::why::registry();
    let output = run(["why", &program.id().to_string(), "--json"]);
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
    let document = output.json();
    assert_eq!(
        document["processes"][0]["waited_ms"],
        serde_json::Value::Null
    );
    assert!(document["processes"][0]["stop_ms"].is_f64(), "{document:#}");
}

/// pyenv's interpreter of a version whose heap is not known.
fn old_python() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv"));
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from).or(home)?;
    let dir = std::fs::read_dir(root.join("versions")).ok()?;
    let mut names = dir.flatten().map(|entry| entry.path());
    let found = names.find(|path| path.to_string_lossy().contains("/3.8."));
    found.map(|path| path.join("bin/python"))
}

#[test]
fn w22_a_version_of_python_that_is_not_known_is_refused_and_is_a_gap() {
    if !is_root() {
        return skip("needs root");
    }
    let Some(python) = old_python() else {
        return skip("no Python 3.8 in pyenv");
    };
    let code = "kept = [open('/proc/self/stat') for _ in range(12)]\n";
    let waits = format!("{code}print('READY', flush=True)\ninput()\n");
    let (mut program, _) = started(Command::new(&python).args(["-c", &waits]));
    let refused = run(["why", &program.id().to_string()]);
    program.kill().unwrap();
    program.wait().unwrap();
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert_eq!(refused.text(), "");
    let expected = format!(
        "fdguard: process {}: the Python is older than 3.9\nhint: use CPython 3.9 to 3.13\n",
        program.id()
    );
    assert!(refused.stderr.ends_with(&expected), "{}", refused.stderr);
    let waits = format!("{code}import time; time.sleep(60)\n");
    let traced = run([
        "trace".as_ref(),
        "--why".as_ref(),
        "--json".as_ref(),
        "--for".as_ref(),
        "2s".as_ref(),
        "--".as_ref(),
        python.as_os_str(),
        "-c".as_ref(),
        waits.as_ref(),
    ]);
    let document = traced.json();
    let gaps = document["gaps"].as_array().unwrap().iter();
    let mut gaps = gaps.filter(|gap| {
        let what = gap["what"].as_str().unwrap();
        what.starts_with("which objects hold the descriptors of ")
    });
    let gap = gaps.next().unwrap_or_else(|| panic!("{document:#}"));
    assert_eq!(gap["why"], "the Python is older than 3.9", "{gap:#}");
    assert_eq!(gap["remedy"], "use CPython 3.9 to 3.13", "{gap:#}");
    assert!(gaps.next().is_none(), "{document:#}");
}
