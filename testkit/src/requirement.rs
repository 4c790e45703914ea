//! What a test needs from the machine, and a visible message if it is missing.

#![expect(
    clippy::print_stderr,
    reason = "a skipped test must be seen in the test's output"
)]

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The reasons for which a test may be skipped where everything should be there.
const ALLOWED_SKIPS: &str = include_str!("../allowed-skips");

/// Prints on standard error that a test did not run, and why. The caller returns afterwards. With
/// `FDGUARD_STRICT=1` the test fails instead, unless `testkit/allowed-skips` has the reason. The
/// file that `FDGUARD_SKIPS` names gets a line.
pub fn skip(reason: &str) {
    eprintln!("SKIPPED: {reason}");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed");
    if let Some(path) = env::var_os("FDGUARD_SKIPS") {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let line = format!("{test}: {}\n", reason.replace('\n', " "));
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.expect("the list of skips cannot be written");
    }
    let is_strict = env::var_os("FDGUARD_STRICT").is_some_and(|value| value == "1");
    assert!(
        !is_strict || is_allowed(reason, ALLOWED_SKIPS),
        "{test} was skipped ({reason}), and testkit/allowed-skips does not have the reason"
    );
}

/// Whether a list has the reason. A line that ends with `*` stands for all that begin with it.
fn is_allowed(reason: &str, list: &str) -> bool {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let mut lines = lines.filter(|line| !line.is_empty());
    lines.any(|line| match line.strip_suffix('*') {
        Some(begin) => reason.starts_with(begin),
        None => reason == line,
    })
}

/// Whether a program of this name is on the search path.
#[must_use]
pub fn have(program: &str) -> bool {
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// Whether the test runs as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A version of a language's runtime.
#[derive(Clone, Debug)]
pub struct TestRuntime {
    /// 18 for Node 18.
    pub version: u32,
    /// The program.
    pub path: PathBuf,
}

/// Where `testkit/runtimes` installs.
pub(crate) fn runtimes_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/runtimes")
}

/// The wanted versions of a runtime (`node`, `java`): those that `testkit/runtimes` installed, and
/// the one on the search path. Prints which are missing.
#[must_use]
pub fn runtimes(name: &str, wanted: &[u32]) -> Vec<TestRuntime> {
    let directory = runtimes_dir();
    let installed = PathBuf::from(name);
    let installed_version = version(&installed);
    let mut found = Vec::new();
    for &wanted in wanted {
        let brought = directory.join(format!("{name}-{wanted}/bin/{name}"));
        if installed_version == Some(wanted) {
            found.push(TestRuntime {
                version: wanted,
                path: installed.clone(),
            });
        } else if let Ok(path) = brought.canonicalize() {
            found.push(TestRuntime {
                version: wanted,
                path,
            });
        } else {
            skip(&format!("no {name} {wanted}: testkit/runtimes brings it"));
        }
    }
    found
}

/// A path in the software that `testkit/software` installs: `venv/bin/python`, `node/node_modules`.
/// Prints a message if it is missing.
#[must_use]
pub fn software(path: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/software");
    // Only the directory: the interpreter of a virtual environment must keep its own name.
    let found = root.canonicalize().ok().map(|root| root.join(path));
    let found = found.filter(|found| found.exists());
    if found.is_none() {
        skip(&format!("no {path}: testkit/software installs it"));
    }
    found
}

/// The first number in its version output: `v18.20.8`, `openjdk 17.0.15 2025-04-15`.
fn version(program: &Path) -> Option<u32> {
    let said = Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let mut numbers = said.split(|one: char| !one.is_ascii_digit());
    numbers.find_map(|number| number.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn only_listed_reasons_are_allowed() {
        let list = "# needs root\n\nno IPv6 on this machine\nno Python*\n";
        assert!(is_allowed("no IPv6 on this machine", list));
        assert!(is_allowed("no Python 3.9 in pyenv", list));
        for reason in [
            "needs root",
            "# needs root",
            "no IPv6",
            "",
            "no zstd program",
        ] {
            assert!(!is_allowed(reason, list), "{reason}");
        }
    }
}
