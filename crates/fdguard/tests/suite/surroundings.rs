//! Every command where fdguard itself is poor: without a home, a terminal, room for files or
//! descriptors, or with a reader that goes away. It works, or refuses with its own code and one
//! line; it never panics and is never killed.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use testkit::{have, is_root, skip};

use super::attaching::Runner;
use super::{CommandOutput, fdguard};

/// A process to look at, and files to read.
struct Subjects {
    runner: Runner,
    dir: TempDir,
}

/// What a command does where nothing is missing.
struct Usual {
    words: Vec<OsString>,
    code: i32,
    /// A part of its output, or of stderr.
    output: &'static str,
}

impl Subjects {
    fn new() -> Self {
        // Not below /tmp, which some tests take away.
        let target = Path::new(env!("CARGO_BIN_EXE_fdguard")).parent().unwrap();
        let dir = tempfile::tempdir_in(target).unwrap();
        fs::write(
            dir.path().join("log"),
            "OSError: [Errno 24] Too many open files\n",
        )
        .unwrap();
        fs::write(dir.path().join("lines"), "{\"a\":1}\n").unwrap();
        Self {
            runner: Runner::start(),
            dir,
        }
    }

    fn path(&self, name: &str) -> OsString {
        self.dir.path().join(name).into()
    }

    /// Every command that ends by itself.
    fn commands(&self) -> Vec<Usual> {
        let pid: OsString = self.runner.pid.to_string().into();
        let text = |words: &str| words.split(' ').map(OsString::from).collect::<Vec<_>>();
        let with = |words: &str, last: &OsString| {
            let mut all = text(words);
            all.push(last.clone());
            all
        };
        let usual = |words, code, output| Usual {
            words,
            code,
            output,
        };
        vec![
            usual(text("top --once"), 0, "PID"),
            usual(with("snap", &pid), 0, "runner-O2"),
            usual(with("snap --json", &pid), 0, "fdguard.snapshot/1"),
            usual(with("watch --for 1s --every 200ms", &pid), 0, "runner-O2"),
            usual(text("trace -- sh -c echo"), 0, "sh"),
            usual(with("trace --for 300ms", &pid), 0, "attaching"),
            usual(text("check -- true"), 0, ""),
            usual(text("run --once -- sh -c true"), 0, ""),
            usual(with("explain", &self.path("log")), 1, "too-many-open-files"),
            usual(with("inspect", &self.path("lines")), 0, "lines"),
            usual(text("unit systemd -- /bin/sleep 9"), 0, "ExecStart="),
            usual(with("doctor --for 1s", &pid), 0, "runner-O2"),
            usual(text("--help"), 0, "Usage"),
        ]
    }
}

/// Runs every command as `adapt` makes it; returns those that refused.
fn each(adapt: impl Fn(Command) -> Command) -> Vec<(String, CommandOutput)> {
    let subjects = Subjects::new();
    let mut refused = Vec::new();
    for usual in subjects.commands() {
        let mut command = fdguard();
        command.args(&usual.words);
        let name = format!("{:?}", usual.words);
        let output = adapt(command).stdin(Stdio::null()).output().unwrap();
        let shown = format!("{name}: {output:?}");
        assert!(output.status.code().is_some(), "killed: {shown}");
        let output = CommandOutput::of(output);
        assert!(!output.stderr.contains("panicked"), "{shown}");
        // 125: the program that it launches could not be started.
        if matches!(output.code, 3 | 125) {
            // An error, or a report without a verdict that lists why.
            let reasons = ["fdguard: ", "not seen: "];
            let has_reason = reasons.iter().any(|word| output.stderr.contains(word));
            assert!(has_reason, "{shown}");
            refused.push((name, output));
            continue;
        }
        assert_eq!(output.code, usual.code, "{shown}");
        let all = format!("{}{}", output.text(), output.stderr);
        assert!(all.contains(usual.output), "{shown}");
    }
    refused
}

/// The same where nothing may be refused.
fn each_works(adapt: impl Fn(Command) -> Command) {
    let refused = each(adapt);
    let refused: Vec<_> = refused
        .iter()
        .map(|(name, said)| (name, &said.stderr))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// By a program that is given a command, as `prlimit` is.
fn through(words: &[&str], command: &Command) -> Command {
    let mut outer = Command::new(words[0]);
    outer.args(&words[1..]).arg(command.get_program());
    outer.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

#[test]
fn with_no_environment_at_all() {
    each_works(|mut command| {
        let path = std::env::var_os("PATH").unwrap();
        command.env_clear().env("PATH", path);
        command
    });
}

#[test]
fn in_other_languages_zones_and_widths() {
    for (name, value) in [
        ("LC_ALL", "C"),
        ("TZ", "nowhere/at all"),
        ("TZ", "<-0330>+3:30<-0230>,M3.2.0,M11.1.0"),
        ("COLUMNS", "40"),
        ("COLUMNS", "0"),
        ("TERM", ""),
    ] {
        each_works(|mut command| {
            command.env(name, value);
            command
        });
    }
}

#[test]
fn with_no_directory_for_temporary_files() {
    each_works(|mut command| {
        command.env("TMPDIR", "/nowhere/at/all");
        command.env("XDG_RUNTIME_DIR", "/nowhere/at/all");
        command.env("HOME", "/nowhere/at/all");
        command
    });
}

#[test]
fn where_tmp_is_read_only() {
    if !is_root() || !have("unshare") {
        return skip("needs root and unshare");
    }
    // With what is in it: this test may have been built below /tmp.
    let mount = "mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp && exec \"$@\"";
    each_works(|command| through(&["unshare", "--mount", "sh", "-c", mount, "sh"], &command));
}

/// With 16 descriptors little can be read at once; what cannot be done is refused.
#[test]
fn with_sixteen_descriptors() {
    if !have("prlimit") {
        return skip("needs prlimit");
    }
    for limit in ["16", "8"] {
        let limit = format!("--nofile={limit}:{limit}");
        for (name, output) in each(|command| through(&["prlimit", &limit], &command)) {
            let text = output.stderr.to_lowercase();
            let is_named = ["descriptor", "open files", "limit"]
                .iter()
                .any(|word| text.contains(word));
            assert!(is_named, "{name}: {text}");
        }
    }
}

/// A file may have no byte: SIGXFSZ would end a program that does not ignore it.
#[test]
fn where_files_may_not_grow() {
    if !have("prlimit") {
        return skip("needs prlimit");
    }
    for limit in ["--fsize=0:0", "--fsize=8192:8192"] {
        for (name, output) in each(|command| through(&["prlimit", limit], &command)) {
            assert!(output.stderr.contains("large"), "{name}: {}", output.stderr);
        }
    }
}

/// The report does not fit into its file: that is said, and is not a success.
#[test]
fn a_report_that_does_not_fit_into_its_file() {
    if !have("prlimit") {
        return skip("needs prlimit");
    }
    let subjects = Subjects::new();
    let mut command = fdguard();
    command.args(["snap", "--json", &subjects.runner.pid.to_string(), "-o"]);
    command.arg(subjects.path("report"));
    let output = through(&["prlimit", "--fsize=100:100"], &command).output();
    let output = CommandOutput::of(output.unwrap());
    assert_eq!(output.code, 3, "{}", output.stderr);
    assert!(output.stderr.contains("report"), "{}", output.stderr);
    assert!(
        !fs::exists(subjects.path("report")).unwrap(),
        "half a report stays"
    );
}

/// `fdguard … | head -1`.
#[test]
fn a_reader_that_leaves_early() {
    let subjects = Subjects::new();
    let mut commands = subjects.commands();
    commands.retain(|one| !one.output.is_empty());
    for usual in commands {
        let mut child = fdguard()
            .args(&usual.words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut reader = BufReader::with_capacity(64, child.stdout.take().unwrap());
        reader.read_line(&mut line).unwrap();
        drop(reader);
        let output = child.wait_with_output().unwrap();
        assert_is_quiet_end(&usual, &output, usual.code);
    }
}

/// A reader that left before the first byte: what was found still decides about the exit code.
#[test]
fn a_reader_that_has_left_before_the_first_byte() {
    let subjects = Subjects::new();
    for usual in subjects.commands() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = fdguard()
            .args(&usual.words)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        // The traced shell writes into the pipe, too, and ends as it always would.
        let is_killed = usual.words.first().is_some_and(|word| word == "trace")
            && usual.words.contains(&"echo".into());
        assert_is_quiet_end(&usual, &output, if is_killed { 141 } else { usual.code });
    }
}

fn assert_is_quiet_end(usual: &Usual, output: &Output, code: i32) {
    let shown = format!("{:?}: {output:?}", usual.words);
    assert_eq!(output.status.code(), Some(code), "{shown}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !errors.contains("panicked") && !errors.contains("Broken pipe"),
        "{shown}"
    );
}

/// Nobody reads at all: neither output nor errors, and no input.
#[test]
fn with_closed_standard_streams() {
    let subjects = Subjects::new();
    for usual in subjects.commands() {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_fdguard"));
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$@\" <&- >&- 2>&-", "sh"]);
        let status = shell.arg(program).args(&usual.words).status().unwrap();
        let code = status.code();
        assert!(
            code.is_some() && code != Some(101),
            "{:?}: {status}",
            usual.words
        );
    }
}
