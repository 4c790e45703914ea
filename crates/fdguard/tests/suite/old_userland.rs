//! Programs of an older release, in a directory that `testkit/userland` makes: their C library and
//! their Python are not those that fdguard was built with.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use testkit::{have, is_root, skip};

use super::CommandOutput;

/// Leaks in line 4, then says so; with an argument it goes on until it is ended.
const LEAKS: &str = "\
import sys, time
kept = []
def leak():
    kept.append(open('/etc/hostname'))
for _ in range(12):
    leak()
print('held', flush=True)
while sys.argv[1:]:
    leak()
    time.sleep(0.02)
";
const LINE: u64 = 4;

/// The root directory of the oldest release; `None` is reported.
fn userland() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_BIN_EXE_fdguard")).ancestors().nth(2);
    let place = target.unwrap().join("userland");
    let mut releases = ["buster", "bullseye"].iter().map(|name| place.join(name));
    let found = releases.find(|root| root.join("usr/bin/python3").exists());
    if !is_root() || !have("unshare") || found.is_none() {
        skip("needs root, unshare and an older release (testkit/userland)");
        return None;
    }
    found
}

/// `chroot ROOT python3 -c LEAKS`, with more words.
fn leaking(root: &Path, words: &[&str]) -> Vec<String> {
    let mut all = vec!["chroot".to_owned(), root.display().to_string()];
    all.extend(["python3", "-c", LEAKS].map(str::to_owned));
    all.extend(words.iter().map(|word| (*word).to_owned()));
    all
}

/// A command in mounts of its own, where the root has `/proc` and, if asked for, `/dev/shm`.
fn with_mounts(root: &Path, has_shm: bool) -> Command {
    let root = root.display();
    let mut script = format!("mount -t proc proc {root}/proc && mkdir -p {root}/dev/shm && ");
    if has_shm {
        script.push_str(&format!("mount --bind /dev/shm {root}/dev/shm && "));
    }
    script.push_str("exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    command.stdin(Stdio::null());
    command
}

/// `fdguard COMMAND --json -o FILE -- WORDS`, and its report.
fn report(mut outer: Command, command: &str, words: &[String]) -> (CommandOutput, Value) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report");
    outer.args([env!("CARGO_BIN_EXE_fdguard"), command, "--json", "-o"]);
    outer.arg(&file).arg("--").args(words);
    let output = CommandOutput::of(outer.output().unwrap());
    let written = fs::read(&file).unwrap_or_else(|error| panic!("{error}: {}", output.stderr));
    (output, serde_json::from_slice(&written).unwrap())
}

fn has_line(found: &Value) -> bool {
    let mut sites = found["sites"].as_array().unwrap().iter();
    sites.any(|site| site["culprit"]["line"] == LINE && site["live"].as_u64() >= Some(12))
}

#[test]
fn the_library_is_loaded_there() {
    let Some(root) = userland() else { return };
    let (output, found) = report(with_mounts(&root, true), "trace", &leaking(&root, &[]));
    assert_eq!(
        (output.code, output.text()),
        (0, "held\n"),
        "{}",
        output.stderr
    );
    assert_eq!(found["coverage"]["backend"], "preload", "{found:#}");
    assert!(has_line(&found), "{found:#}");
}

#[test]
fn check_names_the_line_there() {
    let Some(root) = userland() else { return };
    let (output, found) = report(with_mounts(&root, true), "check", &leaking(&root, &[]));
    assert_eq!(output.text(), "held\n", "{}", output.stderr);
    assert!(has_line(&found), "{found:#}");
}

/// The library is not in that root: the program runs without it, and the gap names the way.
#[test]
fn where_the_library_cannot_be_read_the_program_runs_without_it() {
    let Some(root) = userland() else { return };
    let (output, found) = report(with_mounts(&root, false), "trace", &leaking(&root, &[]));
    assert_eq!(
        (output.code, output.text()),
        (0, "held\n"),
        "{}",
        output.stderr
    );
    let gaps = found["gaps"].to_string();
    assert!(
        gaps.contains("cannot read the injected library"),
        "{found:#}"
    );
}

/// A program of the other root that runs until it is dropped.
struct Leaking(Child);

impl Leaking {
    fn start(root: &Path) -> Self {
        let mut command = with_mounts(root, false);
        let mut child = command
            .args(leaking(root, &["on"]))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        Self(child)
    }
}

impl Drop for Leaking {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Entering needs glibc 2.34: with an older one it is refused in one line, and the program goes on.
#[test]
fn entering_a_program_there_is_refused_in_one_line() {
    let Some(root) = userland() else { return };
    let mut target = Leaking::start(&root);
    let output = Command::new(env!("CARGO_BIN_EXE_fdguard"))
        .args(["trace", "--json", "--for", "3s", "--source", "attach"])
        .arg(target.0.id().to_string())
        .output();
    let output = CommandOutput::of(output.unwrap());
    assert_eq!(output.code, 3, "{}", output.stderr);
    assert!(
        output.stderr.contains("glibc older than 2.34"),
        "{}",
        output.stderr
    );
    assert!(target.0.try_wait().unwrap().is_none());
}

/// fdguard itself in that root, with the loader and the libraries it was built with beside it.
#[test]
fn fdguard_looks_from_inside_with_its_own_libraries() {
    let Some(root) = userland() else { return };
    let dir = tempfile::tempdir_in(root.join("tmp")).unwrap();
    let copies =
        "cp \"$0\" \"$1/fdguard\" && ldd \"$0\" | grep -o '/[^ ]*' | xargs -I{} cp -L {} \"$1\"";
    let copied = Command::new("sh")
        .args(["-c", copies, env!("CARGO_BIN_EXE_fdguard")])
        .arg(dir.path())
        .status();
    assert!(copied.unwrap().success());
    let inside = Path::new("/").join(dir.path().strip_prefix(&root).unwrap());
    let inside = inside.display().to_string();
    let target = Leaking::start(&root);
    let mut command = with_mounts(&root, true);
    command.arg("chroot").arg(&root);
    command.arg(format!("{inside}/ld-linux-x86-64.so.2"));
    command.args(["--library-path", &inside]);
    command.arg(format!("{inside}/fdguard"));
    command.args(["snap", "--json", &target.0.id().to_string()]);
    let output = CommandOutput::of(command.output().unwrap());
    assert_eq!(output.code, 0, "{}", output.stderr);
    let found = output.json();
    assert!(found["count"].as_u64() > Some(12), "{found:#}");
}
