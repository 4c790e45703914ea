//! A second reader, by the program `lsof`: portable, slower and less detailed than `/proc`.
//!
//! What it does not report is a gap in each snapshot. Nothing here opens a file of the target.

mod anonymous;
mod classify;
mod run;
mod snapshot;
mod socket;

use std::collections::HashMap;
use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Duration;

use fdguard_core::{Pid, Snapshot};
use jiff::Timestamp;
use rustix::io::Errno;

use self::run::{RunOutput, run};
use crate::Error;
use crate::parse::lsof::{ProcessSet, parse};

const PROGRAM: &str = "lsof";

/// The fields, terminated by NUL. `f` must be requested since lsof 4.94; `o` must not: it prints
/// the position instead of the size.
const FIELDS: &str = "-FpgcRuftalGDdirskPTn0";

/// How many processes are requested at once: an argument must stay below 128 KiB on Linux.
const AT_ONCE: usize = 4096;

/// The program `lsof`.
#[derive(Clone, Debug)]
pub struct Lsof {
    /// Its path, or its name to be found in `PATH`.
    pub program: OsString,
    /// How long one run may take; then it is killed.
    pub deadline: Duration,
    /// How many bytes one run may print; then it is killed.
    pub most_output: usize,
}

impl Default for Lsof {
    fn default() -> Self {
        Self {
            program: PROGRAM.into(),
            // A few thousand processes with many descriptors take ten seconds on a busy machine.
            deadline: Duration::from_secs(60),
            // Two million descriptors.
            most_output: 256 << 20,
        }
    }
}

impl Lsof {
    /// The descriptors of several processes, in the requested order. If `lsof` fails, that is the
    /// outcome of each process that it was to report, and of those after them.
    pub fn snapshots(&self, pids: &[Pid]) -> Vec<Result<Snapshot, Error>> {
        let mut results = Vec::with_capacity(pids.len());
        for part in pids.chunks(AT_ONCE) {
            if let Err(problem) = self.read_part(part, &mut results) {
                let rest = pids.len() - results.len();
                results.extend((0..rest).map(|_| Err(helper(problem.clone()))));
                break;
            }
        }
        results
    }

    fn read_part(
        &self,
        pids: &[Pid],
        results: &mut Vec<Result<Snapshot, Error>>,
    ) -> Result<(), String> {
        let taken_at = Timestamp::now();
        let output = run(&mut self.command(pids), self.deadline, self.most_output)?;
        let processes = parse(&output.stdout);
        if processes.is_empty() {
            complain(&output)?;
        }
        let by_pid: HashMap<Pid, &ProcessSet<'_>> = processes
            .iter()
            .filter_map(|process| Some((process.pid()?, process)))
            .collect();
        results.extend(pids.iter().map(|pid| match by_pid.get(pid) {
            Some(set) => Ok(see(*pid, set, taken_at, &output)),
            None => Err(unseen(*pid)),
        }));
        Ok(())
    }

    fn command(&self, pids: &[Pid]) -> Command {
        let list: Vec<String> = pids.iter().map(Pid::to_string).collect();
        let mut command = Command::new(&self.program);
        command
            // No names of hosts and ports, and the flags by name, which is the same everywhere.
            // Warnings stay on: without them the rows about refused tables are omitted, too.
            .args(["-n", "-P", FIELDS, "+fg", "-p", &list.join(",")])
            .env_clear()
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        // lsof needs only `PATH` from the caller's environment.
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command
    }
}

fn helper(problem: String) -> Error {
    Error::Helper {
        program: PROGRAM,
        problem,
    }
}

/// lsof exits with 1 both if a process is missing and if it fails; only the latter prints a reason.
fn complain(output: &RunOutput) -> Result<(), String> {
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = said
        .lines()
        .map(|line| line.trim_start_matches("lsof:").trim())
        .find(|line| !line.is_empty() && !line.starts_with("WARNING"));
    match (output.status.code(), reason) {
        (Some(0), _) | (Some(1), None) => Ok(()),
        (Some(_), Some(reason)) => Err(reason.to_owned()),
        (_, _) => Err(format!("failed with {}", output.status)),
    }
}

fn see(pid: Pid, set: &ProcessSet<'_>, taken_at: Timestamp, output: &RunOutput) -> Snapshot {
    let ours = pid == std::process::id();
    let circumstances = snapshot::Circumstances {
        foreign_network: lives_in_another_network(pid),
        flags_are_whole: cfg!(target_os = "linux"),
        // lsof sees fdguard's ends of the pipes to it.
        hidden: if ours { &output.ends } else { &[] },
    };
    snapshot::snapshot(pid, set, taken_at, circumstances)
}

/// Network namespaces exist only on Linux: without these links there is one network.
fn lives_in_another_network(pid: Pid) -> bool {
    let theirs = std::fs::read_link(format!("/proc/{pid}/ns/net"));
    let ours = std::fs::read_link("/proc/self/ns/net");
    theirs.is_ok_and(|theirs| ours.is_ok_and(|ours| ours != theirs))
}

/// Why lsof shows nothing about a process: it does not exist, or it holds nothing visible.
fn unseen(pid: Pid) -> Error {
    let known = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    match known.map(rustix::process::test_kill_process) {
        None | Some(Err(Errno::SRCH)) => Error::NoSuchProcess(pid),
        Some(_) => helper(format!(
            "no output for process {pid}: it is a zombie, or permission is denied"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::time::Duration;

    use super::Lsof;
    use crate::Error;

    fn error_of(lsof: &Lsof) -> Error {
        let mut results = lsof.snapshots(&[1, 2]);
        assert_eq!(results.len(), 2, "an outcome for each process");
        results.pop().unwrap().unwrap_err()
    }

    /// A program in place of lsof.
    fn fake(dir: &Path, script: &str) -> Lsof {
        let path = dir.join("lsof");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Lsof {
            program: path.into_os_string(),
            ..Lsof::default()
        }
    }

    /// The processes that a script named in a file, each of which must be gone.
    fn assert_gone(pids: &Path) {
        let pids = std::fs::read_to_string(pids).unwrap();
        assert_eq!(pids.lines().count(), 2, "{pids:?}");
        for pid in pids.lines() {
            let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat"));
            // Its parent was killed, too: the process that inherited it reaps it.
            testkit::wait_until(&format!("the end of process {pid}"), || {
                !stat().is_ok_and(|stat| !stat.contains(") Z "))
            });
        }
    }

    #[test]
    fn a_missing_program_is_said_to_be_missing() {
        let missing = Lsof {
            program: "lsof-that-is-not-there".into(),
            ..Lsof::default()
        };
        assert_eq!(error_of(&missing).to_string(), "lsof: not installed");
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let lsof = fake(dir.path(), "echo 'lsof: unsupported option' >&2\nexit 1");
        let error = error_of(&lsof);
        assert!(matches!(error, Error::Helper { .. }));
        assert_eq!(error.to_string(), "lsof: unsupported option");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_child() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        // Silent, with an output that its child keeps open.
        let script = "echo $$ > PIDS\nsh -c 'echo $$ >> PIDS; exec sleep 1000' &\nwait";
        let mut lsof = fake(dir.path(), &script.replace("PIDS", pids.to_str().unwrap()));
        lsof.deadline = Duration::from_secs(3);
        let said = error_of(&lsof).to_string();
        assert_eq!(said, "lsof: not finished after 3 s: killed");
        assert_gone(&pids);
    }

    #[test]
    fn a_program_that_hangs_without_outputs_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let mut lsof = fake(dir.path(), "exec sleep 1000 >/dev/null 2>&1");
        lsof.deadline = Duration::from_millis(500);
        let said = error_of(&lsof).to_string();
        assert_eq!(said, "lsof: not finished after 0.5 s: killed");
    }

    #[test]
    fn a_program_that_prints_forever_is_killed_with_its_child() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let script = "echo $$ > PIDS\nsh -c 'echo $$ >> PIDS; exec yes p812' &\nwait";
        let mut lsof = fake(dir.path(), &script.replace("PIDS", pids.to_str().unwrap()));
        lsof.most_output = 8 << 20;
        let said = error_of(&lsof).to_string();
        assert_eq!(said, "lsof: more than 8 MiB of output: killed");
        assert_gone(&pids);
    }
}
