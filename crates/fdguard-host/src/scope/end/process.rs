//! Ends a process that was started elsewhere. It is signalled only while it is the very process
//! that was added to the scope.

use std::os::fd::OwnedFd;

use fdguard_proc::ProcessId;
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

use super::super::clean_up::{CleanUpAction, ResourceDetails};
use super::{Around, ScopeEnd, too_long};
use crate::watched_tree;

pub(in crate::scope) async fn end_process(identity: &ProcessId, around: &Around) -> ScopeEnd {
    let Ok(pidfd) = identity.open_pidfd() else {
        return ScopeEnd::fine(CleanUpAction::Absent).with(gone(0));
    };
    let pidfd = match watched_tree::owned(pidfd, Interest::READABLE) {
        Ok(pidfd) => pidfd,
        Err(error) => return ScopeEnd::failed(format!("cannot wait for the process: {error}")),
    };
    let limit = around.how.limit;
    let grace = around.how.grace.min(limit);
    match send(&pidfd, Signal::TERM) {
        Ok(true) => {}
        Ok(false) => return ScopeEnd::fine(CleanUpAction::Absent).with(gone(0)),
        Err(errno) => return ScopeEnd::failed(format!("cannot signal the process: {errno}")),
    }
    // A stopped process acts on TERM only after it is continued.
    let _gone = send(&pidfd, Signal::CONT);
    if timeout(grace, pidfd.readable()).await.is_ok() {
        return ScopeEnd::fine(CleanUpAction::Ended).with(gone(0));
    }
    let mut first = Vec::new();
    for _ in 0..2 {
        let _gone = send(&pidfd, Signal::KILL);
        if timeout(limit, pidfd.readable()).await.is_ok() {
            let end = ScopeEnd::fine(CleanUpAction::Ended).with(gone(1));
            return if first.is_empty() {
                end
            } else {
                end.after(first)
            };
        }
        first.push(too_long(limit));
    }
    ScopeEnd::failed("the process survives SIGKILL")
        .after(first)
        .with(ResourceDetails {
            survivors: Some(vec![identity.pid]),
            tried_twice: true,
            ..ResourceDetails::default()
        })
}

/// Returns false if the process is gone.
fn send(pidfd: &AsyncFd<OwnedFd>, signal: Signal) -> Result<bool, Errno> {
    match pidfd_send_signal(pidfd.get_ref(), signal) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn gone(killed: u32) -> ResourceDetails {
    ResourceDetails {
        survivors: Some(Vec::new()),
        killed: Some(killed),
        ..ResourceDetails::default()
    }
}
