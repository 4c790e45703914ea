//! A second reader, by the program `lsof`: portable, slower and less detailed than `/proc`.
//!
//! What it does not report is a gap in each snapshot. Nothing here opens a file of the target.

mod anonymous;
mod classify;
mod snapshot;
mod socket;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::process::{Command, Output, Stdio};

use fdguard_core::{Fd, Pid, Snapshot};
use jiff::Timestamp;
use rustix::io::Errno;

use crate::Error;
use crate::parse::lsof::{ProcessSet, parse};

const PROGRAM: &str = "lsof";

/// The fields, terminated by NUL. `f` must be requested since lsof 4.94; `o` must not: it prints
/// the position instead of the size.
const FIELDS: &str = "-FpgcRuftalGDdirskPTn0";

/// How many processes are requested at once: an argument must stay below 128 KiB on Linux.
const AT_ONCE: usize = 4096;

/// The descriptors of several processes, in the requested order. Each has its own outcome; the
/// whole call fails if `lsof` cannot be run.
pub fn snapshots(pids: &[Pid]) -> Result<Vec<Result<Snapshot, Error>>, Error> {
    snapshots_by(PROGRAM.as_ref(), pids)
}

fn snapshots_by(program: &OsStr, pids: &[Pid]) -> Result<Vec<Result<Snapshot, Error>>, Error> {
    let mut results = Vec::with_capacity(pids.len());
    for part in pids.chunks(AT_ONCE) {
        let answer = ask(program, part)?;
        let processes = parse(&answer.output.stdout);
        if processes.is_empty() {
            complain(&answer.output)?;
        }
        let by_pid: HashMap<Pid, &ProcessSet<'_>> = processes
            .iter()
            .filter_map(|process| Some((process.pid()?, process)))
            .collect();
        results.extend(part.iter().map(|pid| match by_pid.get(pid) {
            Some(set) => Ok(see(*pid, set, &answer)),
            None => Err(unseen(*pid)),
        }));
    }
    Ok(results)
}

struct Answer {
    output: Output,
    taken_at: Timestamp,
    /// fdguard's ends of the pipes to lsof, which lsof sees when it reads fdguard.
    hidden: Vec<Fd>,
}

fn ask(program: &OsStr, pids: &[Pid]) -> Result<Answer, Error> {
    let list: Vec<String> = pids.iter().map(Pid::to_string).collect();
    let mut command = Command::new(program);
    command
        // No names of hosts and ports, and the flags by name, which is the same everywhere.
        // Warnings stay on: without them the rows about refused tables are omitted, too.
        .args(["-n", "-P", FIELDS, "+fg", "-p", &list.join(",")])
        .env_clear()
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // lsof needs only `PATH` from the caller's environment.
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    let taken_at = Timestamp::now();
    let child = command.spawn().map_err(|error| {
        helper(match error.kind() {
            std::io::ErrorKind::NotFound => "not installed".to_owned(),
            _ => format!("cannot be executed: {error}"),
        })
    })?;
    let ends = [
        child.stdout.as_ref().map(|pipe| number(pipe.as_fd())),
        child.stderr.as_ref().map(|pipe| number(pipe.as_fd())),
    ];
    let output = child
        .wait_with_output()
        .map_err(|error| helper(format!("cannot read its output: {error}")))?;
    Ok(Answer {
        output,
        taken_at,
        hidden: ends.into_iter().flatten().collect(),
    })
}

fn number(fd: BorrowedFd<'_>) -> Fd {
    fd.as_raw_fd().unsigned_abs()
}

fn helper(problem: String) -> Error {
    Error::Helper {
        program: PROGRAM,
        problem,
    }
}

/// lsof exits with 1 both if a process is missing and if it fails; only the latter prints a reason.
fn complain(output: &Output) -> Result<(), Error> {
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = said
        .lines()
        .map(|line| line.trim_start_matches("lsof:").trim())
        .find(|line| !line.is_empty() && !line.starts_with("WARNING"));
    match (output.status.code(), reason) {
        (Some(0), _) | (Some(1), None) => Ok(()),
        (Some(_), Some(reason)) => Err(helper(reason.to_owned())),
        (_, _) => Err(helper(format!("failed with {}", output.status))),
    }
}

fn see(pid: Pid, set: &ProcessSet<'_>, answer: &Answer) -> Snapshot {
    let ours = pid == std::process::id();
    let circumstances = snapshot::Circumstances {
        foreign_network: lives_in_another_network(pid),
        flags_are_whole: cfg!(target_os = "linux"),
        hidden: if ours { &answer.hidden } else { &[] },
    };
    snapshot::snapshot(pid, set, answer.taken_at, circumstances)
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

    use super::snapshots_by;
    use crate::Error;

    #[test]
    fn a_missing_program_is_said_to_be_missing() {
        let error = snapshots_by("lsof-that-is-not-there".as_ref(), &[1]).unwrap_err();
        assert_eq!(error.to_string(), "lsof: not installed");
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("lsof");
        std::fs::write(
            &script,
            "#!/bin/sh\necho 'lsof: unsupported option' >&2\nexit 1\n",
        )
        .unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = snapshots_by(script.as_os_str(), &[1]).unwrap_err();
        assert!(matches!(error, Error::Helper { .. }));
        assert_eq!(error.to_string(), "lsof: unsupported option");
    }
}
