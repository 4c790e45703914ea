//! `trace` and `check` for a client: `fdguard` itself runs the command, in a process tree that ends
//! with the call. The host needs no tracer, and a misbehaving program is not its child.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fdguard_core::units::exact_seconds;
use fdguard_process::plan::Plan;
use fdguard_process::tree::Exit;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

use super::look::{LARGEST, capture, read};
use super::report_pipe::ReportPipe;
use crate::Error;
use crate::scope::Program;
use crate::session::{Collector, ExecOutput};

/// Extra time for `fdguard` after the program's time: a program that ignores TERM, symbol names,
/// leftovers.
const SPARE: Duration = Duration::from_secs(60);

/// A command to be run under the tracer.
#[derive(Debug)]
pub(super) struct Trial {
    /// `trace` or `check`, and its options.
    pub(super) words: Vec<String>,
    /// The program and its arguments.
    pub(super) command: Vec<String>,
    /// Its working directory.
    pub(super) dir: Option<PathBuf>,
    /// Additions to the environment.
    pub(super) environment: BTreeMap<String, String>,
    /// The time limit.
    pub(super) limit: Duration,
    /// Bytes of each stream that are kept.
    pub(super) output_cap: usize,
}

/// The result of a trial.
#[derive(Debug)]
pub(super) struct TrialEnd {
    /// The diagnosis; `None` if `fdguard` printed none.
    pub(super) document: Option<Value>,
    /// The exit code of `fdguard`, 128 and the number after a signal.
    pub(super) status: Option<i32>,
    /// What the program printed.
    pub(super) stdout: ExecOutput,
    /// Stderr of the program and of `fdguard`.
    pub(super) stderr: ExecOutput,
    /// How long it took.
    pub(super) took: Duration,
}

impl Trial {
    /// Runs it. Dropped, everything that was started is killed.
    pub(super) async fn run(self, program: &Path) -> Result<TrialEnd, Error> {
        self.check()?;
        let began = Instant::now();
        let (plan, report, [out, err]) = self
            .plan(program)
            .map_err(Error::io("cannot start the program"))?;
        let receiver = |fd| {
            Receiver::from_owned_fd(fd).map_err(Error::io("cannot use the pipe to the program"))
        };
        let ReportPipe { ours, theirs, name } = report;
        let (report_read, out, err) = (receiver(ours)?, receiver(out)?, receiver(err)?);
        let running = Program::start(plan).await?;
        let ended = async {
            let exit = running.finish().await;
            // The last write end of the pipe was this one.
            drop(theirs);
            drop(name);
            exit
        };
        let all = async {
            let cap = self.output_cap;
            tokio::join!(
                ended,
                read(report_read, LARGEST),
                collect(out, cap),
                collect(err, cap)
            )
        };
        let Ok((exit, document, stdout, stderr)) =
            tokio::time::timeout(self.limit + SPARE, all).await
        else {
            let limit = exact_seconds(self.limit + SPARE);
            return Err(Error::Bad(format!(
                "not finished after {limit}: the program and its children were killed"
            )));
        };
        Ok(TrialEnd {
            document: serde_json::from_slice(&document?).ok(),
            status: exit.map(status),
            stdout: stdout?,
            stderr: stderr?,
            took: began.elapsed(),
        })
    }

    /// Rejects in one line what no process can be started with.
    fn check(&self) -> Result<(), Error> {
        let bad = |why: &str| Err(Error::Bad(format!("invalid arguments: {why}")));
        let has_nul = |text: &str| text.contains('\0');
        if self.command.first().is_none_or(String::is_empty) {
            return bad("command: no program given");
        }
        if self
            .words
            .iter()
            .chain(&self.command)
            .any(|word| has_nul(word))
        {
            return bad("command: an argument contains a NUL byte");
        }
        let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
        if !self
            .environment
            .iter()
            .all(|(name, value)| is_name(name) && !has_nul(value))
        {
            return bad("env: a name is empty or contains =, or a value contains a NUL byte");
        }
        match &self.dir {
            Some(dir) if !dir.is_absolute() => bad("cwd: not an absolute path"),
            Some(dir) if !dir.is_dir() => bad("cwd: no such directory"),
            _ => Ok(()),
        }
    }

    fn plan(&self, program: &Path) -> std::io::Result<(Plan, ReportPipe, [OwnedFd; 2])> {
        let report = ReportPipe::new()?;
        let mut words = vec![program.as_os_str().to_owned()];
        words.extend(self.words.iter().map(OsString::from));
        words.extend(["--json", "-o"].map(OsString::from));
        words.push(report.name.path().into());
        words.push("--".into());
        words.extend(self.command.iter().map(OsString::from));
        let mut plan = Plan::new(words, self.environment());
        plan.dir.clone_from(&self.dir);
        let outputs = capture(&mut plan)?;
        Ok((plan, report, outputs))
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let is_given = |name: &OsString| {
            name.to_str()
                .is_some_and(|it| self.environment.contains_key(it))
        };
        let kept = std::env::vars_os().filter(|(name, _)| !is_given(name));
        let added = self.environment.iter();
        kept.chain(added.map(|(name, value)| (name.into(), value.into())))
            .collect()
    }
}

/// As a shell shows it.
fn status(exit: Exit) -> i32 {
    match exit {
        Exit::Code(code) => code.into(),
        Exit::Signal(signal) => 128 + signal,
    }
}

/// Collects a stream, keeping its start and its end.
async fn collect(mut pipe: Receiver, cap: usize) -> Result<ExecOutput, Error> {
    let mut kept = Collector::new(cap);
    let mut piece = vec![0; 16 << 10];
    loop {
        let count = pipe.read(&mut piece).await;
        match count.map_err(Error::io("cannot read the output of the program"))? {
            0 => return Ok(kept.finish()),
            count => kept.push(piece.get(..count).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::Trial;

    /// A program in the place of `fdguard`: it gets `-c SCRIPT --json -o PLACE -- COMMAND`.
    fn trial(script: &str) -> Trial {
        Trial {
            words: vec!["-c".to_owned(), script.to_owned(), "fdguard".to_owned()],
            command: vec!["x".to_owned()],
            dir: None,
            environment: [("COLOUR".to_owned(), "blue".to_owned())].into(),
            limit: Duration::from_secs(30),
            output_cap: 64,
        }
    }

    #[tokio::test]
    async fn the_document_comes_by_its_own_way_and_output_is_bounded() {
        let script = r#"echo "$COLOUR"; seq 1000; echo '{"a": 1}' >"$3"; echo no >&2; exit 3"#;
        let ended = trial(script).run(Path::new("/bin/sh")).await.unwrap();
        assert_eq!(ended.document.unwrap()["a"], 1);
        assert_eq!(
            (ended.status, ended.stderr.text.as_str()),
            (Some(3), "no\n")
        );
        assert!(
            ended.stdout.text.starts_with("blue\n1\n"),
            "{:?}",
            ended.stdout
        );
        assert!(ended.stdout.dropped.is_some());
    }

    #[tokio::test]
    async fn what_outlives_it_is_ended_and_does_not_hold_the_answer() {
        let script = r"sleep 1000 & echo $!";
        let ended = trial(script).run(Path::new("/bin/sh")).await.unwrap();
        assert!(ended.document.is_none());
        let pid = ended.stdout.text.trim();
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid}");
    }

    #[tokio::test]
    async fn what_cannot_be_started_is_refused_in_a_line() {
        let refused = |change: fn(&mut Trial)| async move {
            let mut trial = trial("true");
            change(&mut trial);
            trial
                .run(Path::new("/bin/sh"))
                .await
                .unwrap_err()
                .to_string()
        };
        let said = refused(|it| it.command.clear()).await;
        assert_eq!(said, "invalid arguments: command: no program given");
        let said = refused(|it| it.dir = Some("tmp".into())).await;
        assert_eq!(said, "invalid arguments: cwd: not an absolute path");
        let said = refused(|it| it.dir = Some("/nonexistent".into())).await;
        assert_eq!(said, "invalid arguments: cwd: no such directory");
        let named = |it: &mut Trial| drop(it.environment.insert("A=B".to_owned(), String::new()));
        assert!(refused(named).await.starts_with("invalid arguments: env: "));
    }
}
