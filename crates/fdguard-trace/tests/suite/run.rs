//! Running the C victim with and without the library.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use fdguard_trace::{
    Options, ProcessTable, ProcessTables, Protection, ReportPolicy, Site, Symbols, TracedCommand,
};

/// The victim, optimised and without frame pointers, as usual for programs.
pub(crate) fn victim() -> PathBuf {
    let flags = ["-O2", "-g", "-fomit-frame-pointer", "-pthread"];
    testkit::c_variant("traced", "O2", &flags).expect("a victim that compiles")
}

/// The line of the victim's source with this mark.
pub(crate) fn line(mark: &str) -> u32 {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/c/traced.c");
    let text = std::fs::read_to_string(source).unwrap();
    let wanted = format!("/* LEAK {mark} */");
    let at = text
        .lines()
        .position(|line| line.contains(&wanted))
        .unwrap();
    u32::try_from(at + 1).unwrap()
}

/// The outcome of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) said: String,
    pub(crate) status: ExitStatus,
}

/// A run under the tracer.
pub(crate) struct Run {
    pub(crate) outcome: Outcome,
    pub(crate) pid: u32,
    pub(crate) tables: ProcessTables,
}

impl Run {
    /// The latest table of the program.
    pub(crate) fn table(&self) -> &ProcessTable {
        self.tables.table_of(self.pid).expect("a table")
    }

    /// What it left open, by site.
    pub(crate) fn sites(&self) -> Vec<Site> {
        let table = self.table();
        let fds = table.open.keys().copied();
        Site::rank(&self.tables, table, fds, &mut Symbols::new())
    }
}

/// The same for the victim that creates processes.
pub(crate) fn children() -> PathBuf {
    let flags = ["-O2", "-g", "-fomit-frame-pointer", "-pthread"];
    testkit::c_variant("children", "O2", &flags).expect("a victim that compiles")
}

/// The command with its output in a file, through a shell that execs it.
fn shell(program: PathBuf, mode: &str, redirection: &str, file: &Path) -> Vec<OsString> {
    let script = format!("exec \"$0\" {mode} {redirection}");
    let mut words: Vec<OsString> = ["sh", "-c", &script].map(OsString::from).to_vec();
    words.push(program.into());
    words.push(file.into());
    words
}

/// The same for another program, with its output captured.
fn shell_of(words: &[OsString], file: &Path) -> Vec<OsString> {
    let script = "said=$1; shift; exec \"$@\" > \"$said\" 2>&1";
    let mut all: Vec<OsString> = ["sh", "-c", script, "sh"].map(OsString::from).to_vec();
    all.push(file.into());
    all.extend_from_slice(words);
    all
}

pub(crate) fn alone(mode: &str, redirection: &str) -> Outcome {
    alone_of(victim(), mode, redirection)
}

pub(crate) fn alone_of(program: PathBuf, mode: &str, redirection: &str) -> Outcome {
    alone_in(|file| shell(program, mode, redirection, file))
}

pub(crate) fn alone_words(words: &[OsString]) -> Outcome {
    alone_in(|file| shell_of(words, file))
}

fn alone_in(words: impl FnOnce(&Path) -> Vec<OsString>) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("said");
    let words = words(&file);
    let status = Command::new(&words[0]).args(&words[1..]).status().unwrap();
    Outcome {
        said: std::fs::read_to_string(&file).unwrap_or_default(),
        status,
    }
}

pub(crate) fn traced(mode: &str, redirection: &str) -> Run {
    traced_of(victim(), mode, redirection)
}

pub(crate) fn traced_of(program: PathBuf, mode: &str, redirection: &str) -> Run {
    traced_in(Options::default(), |file| {
        shell(program, mode, redirection, file)
    })
}

/// The same under protection.
pub(crate) fn protected_of(program: PathBuf, mode: &str, redirection: &str) -> Run {
    traced_in(protection(), |file| shell(program, mode, redirection, file))
}

pub(crate) fn protected_words(words: &[OsString]) -> Run {
    traced_in(protection(), |file| shell_of(words, file))
}

fn protection() -> Options {
    Options {
        protect: Some(Protection::new(ReportPolicy::Once)),
        ..Options::default()
    }
}

pub(crate) fn traced_words(words: &[OsString]) -> Run {
    traced_in(Options::default(), |file| shell_of(words, file))
}

fn traced_in(options: Options, words: impl FnOnce(&Path) -> Vec<OsString>) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("said");
    let mut traced = TracedCommand::launch(&words(&file), &options).unwrap();
    assert_eq!(traced.session.source().blind(), None);
    let status = traced.wait().unwrap();
    Run {
        outcome: Outcome {
            said: std::fs::read_to_string(&file).unwrap_or_default(),
            status,
        },
        pid: traced.pid(),
        tables: traced.session.tables().unwrap(),
    }
}

/// A program without and with the library.
pub(crate) fn both_ways(program: &Path) -> (Outcome, Outcome) {
    let dir = tempfile::tempdir().unwrap();
    let outcome = |name: &str, run: &dyn Fn(&[OsString]) -> ExitStatus| {
        let file = dir.path().join(name);
        let mut words: Vec<OsString> = ["sh", "-c", "exec \"$0\" > \"$1\" 2>&1"]
            .map(OsString::from)
            .to_vec();
        words.extend([program.into(), (&file).into()]);
        let status = run(&words);
        let said = std::fs::read_to_string(&file).unwrap_or_default();
        Outcome { said, status }
    };
    let alone = outcome("alone", &|words| {
        Command::new(&words[0]).args(&words[1..]).status().unwrap()
    });
    let traced = outcome("traced", &|words| {
        let mut traced = TracedCommand::launch(words, &Options::default()).unwrap();
        traced.wait().unwrap()
    });
    (alone, traced)
}
