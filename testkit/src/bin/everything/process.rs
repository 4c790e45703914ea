//! Handles of processes that run, ended, and are gone.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use serde_json::Value;
use testkit::VictimReport;

/// Opens the handles; returns the child that stays a zombie, to be reaped at the end.
pub(crate) fn open(report: &mut VictimReport) -> io::Result<Child> {
    let own = std::process::id();
    report
        .hold("handle of ourselves", "pidfd", handle(own)?)?
        .with("pid", own)
        .with("alive", true);

    let zombie = ended()?;
    report
        .hold("handle of a zombie", "pidfd", handle(zombie.id())?)?
        .with("pid", zombie.id())
        .with("alive", false);

    let mut gone = ended()?;
    let fd = handle(gone.id())?;
    gone.wait()?;
    report
        .hold("handle of a process that is gone", "pidfd", fd)?
        .with("pid", Value::Null)
        .with("alive", false);
    Ok(zombie)
}

pub(crate) fn clean_up(mut zombie: Child) -> io::Result<()> {
    zombie.wait().map(drop)
}

/// A child that has ended and was not waited for.
fn ended() -> io::Result<Child> {
    let child = Command::new("true")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    let id = WaitId::Pid(pid(child.id())?);
    waitid(id, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    Ok(child)
}

fn handle(id: u32) -> io::Result<OwnedFd> {
    Ok(pidfd_open(pid(id)?, PidfdFlags::empty())?)
}

fn pid(id: u32) -> io::Result<Pid> {
    let id = i32::try_from(id).map_err(io::Error::other)?;
    Pid::from_raw(id).ok_or_else(|| io::Error::other("process number zero"))
}
