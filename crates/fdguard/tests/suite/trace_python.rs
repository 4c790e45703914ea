//! Python programs under `fdguard trace`: interpreters, and programs that load Python while
//! running.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::skip;

use super::{CommandOutput, fdguard};

/// Leaves three open.
const SCRIPT: &str = "import os
kept = []
def keep():
    kept.append(os.open('/dev/zero', os.O_RDONLY))  # three
for _ in range(3):
    keep()
os.close(os.open('/dev/zero', os.O_RDONLY))
";

/// Python versions of pyenv, with their directories.
fn versions() -> Vec<(u32, PathBuf)> {
    let home = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv")));
    let dir = home.unwrap_or_default().join("versions");
    let mut found = Vec::new();
    for minor in 9..=13 {
        let prefix = format!("3.{minor}.");
        let mut entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let version =
            entries.find(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        match version {
            Some(version) => found.push((minor, version.path())),
            None => skip(&format!("no Python 3.{minor} in pyenv")),
        }
    }
    found
}

/// Runs the program with the script as its last argument; returns its output and the report.
fn report(program: &Path, words: &[&str], home: Option<&Path>) -> (CommandOutput, String) {
    let dir = tempfile::tempdir().unwrap();
    let (script, result) = (dir.path().join("keeper.py"), dir.path().join("result"));
    fs::write(&script, SCRIPT).unwrap();
    let mut command = fdguard();
    command
        .args(["trace", "--error-exitcode", "0", "-o"])
        .arg(&result)
        .arg("--")
        .arg(program)
        .args(words)
        .arg(&script);
    if let Some(home) = home {
        command.env("PYTHONHOME", home);
    }
    let said = CommandOutput::of(command.output().unwrap());
    (said, fs::read_to_string(result).unwrap())
}

#[track_caller]
fn names_the_line(report: &str) {
    let mut sites = report.lines().filter(|line| line.contains("3 live of 3, "));
    let is_named = sites.any(|line| line.contains(": keeper.py:4 keep (open"));
    assert!(is_named, "{report}");
    assert!(report.contains("      keeper.py:6 <module>\n"), "{report}");
}

#[test]
fn r18_python_lines_are_named_in_every_version() {
    for (_, dir) in versions() {
        let (said, report) = report(&dir.join("bin/python3"), &[], None);
        assert_eq!((said.code, &*said.stderr), (0, ""));
        names_the_line(&report);
    }
}

#[test]
fn r18_python_lines_are_named_where_the_program_is_the_interpreter() {
    // Debian's holds the interpreter itself, without a library.
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        return skip("no /usr/bin/python3");
    }
    let (said, report) = report(python, &[], None);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    names_the_line(&report);
}

#[test]
fn r18_python_lines_are_named_where_a_library_brings_it_later() {
    let program =
        testkit::c_variant("embed", "O2", &["-O2", "-g"]).expect("a victim that compiles");
    for (minor, dir) in versions() {
        let library = dir.join(format!("lib/libpython3.{minor}.so"));
        if !library.exists() {
            skip(&format!("Python 3.{minor} without its library"));
            continue;
        }
        let library = library.to_str().unwrap();
        for way in ["global", "local", "unload"] {
            let (said, report) = report(&program, &[library, way], Some(&dir));
            let outcome = (said.code, said.text(), &*said.stderr);
            // Without exported symbols Python's extension modules cannot be linked, but those used
            // here are built in.
            assert_eq!(outcome, (0, "first 3 failed 0\n", ""), "{way} 3.{minor}");
            names_the_line(&report);
            let native = if way == "unload" {
                "2 live of 2"
            } else {
                "1 live of 1"
            };
            let own = report.lines().find(|line| line.contains(" opened (open"));
            assert!(own.is_some_and(|line| line.contains(native)), "{report}");
        }
    }
}
