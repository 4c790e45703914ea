//! A keeper started by exec, for a program that another process forked and that waits until its
//! keeper releases it.
//!
//! The process that forked the program becomes this keeper. Descriptor 3 is the keeper's end of the
//! pair with the owner or, with the word `ahead`, a socket that will deliver it. Descriptor 4 leads
//! to the program: it reports `ready`, or which step failed and why (`folder 2`), and starts when
//! it reads a byte. So it has no descendants before this process is the parent of all orphans.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, read, write};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open, set_child_subreaper, setsid};
use rustix::thread::set_name;

use super::message::{FromKeeper, Step};
use super::watch::{self, Keeper};
use super::words::Words;
use super::{Ends, NAME, Room, ahead, kin, wake_with_parent};
use crate::cgroup::Leaf;
use crate::limits::RequestedLimits;
use crate::spawn::child::SpawnFailure;
use crate::sys;

/// The keeper's end of the pair, or the socket that delivers it.
const CONTROL: i32 = 3;
/// Its end of the pair with the program.
const PROGRAM: i32 = 4;
/// The first word of a keeper whose owner is not known yet.
const AHEAD: &str = "ahead";

/// Keeps the tree of a program that this process forked before its exec. `words` are those returned
/// by the owner's [`Offer::words`](crate::tree::Offer::words), and `main=PID`. It takes descriptors
/// 3 and 4: nothing else in this process may use them.
///
/// With `ahead` as the first word, the owner's words and the end of its pair are awaited as one
/// message on descriptor 3, each word terminated by a zero byte; if that is closed instead, there
/// is nothing to keep.
pub fn keep_here(words: impl IntoIterator<Item = OsString>) -> ! {
    sys::block_signals(sys::ALL_SIGNALS);
    sys::forget_handlers();
    let (Some(first), Some(program)) = (sys::inherited(CONTROL), sys::inherited(PROGRAM)) else {
        sys::exit(2);
    };
    let signals = settled();
    let mut words: Vec<OsString> = words.into_iter().collect();
    let control = if words.first().is_some_and(|word| word == AHEAD) {
        let Some((control, offered)) = ahead::awaited(&first) else {
            sys::exit(0);
        };
        words.splice(..1, offered);
        control
    } else {
        first
    };
    let Some(told) = Words::decode(words) else {
        let (step, errno) = (Step::Keeper, Errno::INVAL);
        watch::say(&control, FromKeeper::Failed { step, errno });
        sys::exit(2);
    };
    let mut room = Room::new();
    let keeper = signals.and_then(|signals| keeper(&told, &control, program, signals, &mut room));
    match keeper {
        Ok(keeper) => keeper.keep(),
        Err(SpawnFailure { step, errno }) => {
            watch::say(&control, FromKeeper::Failed { step, errno });
            sys::exit(1)
        }
    }
}

/// Becomes the parent of all orphans. Returns the descriptor that signals the ends of children.
fn settled() -> Result<OwnedFd, SpawnFailure> {
    set_child_subreaper(Some(getpid())).map_err(SpawnFailure::at(Step::Subreaper))?;
    let _nameless = set_name(NAME);
    wake_with_parent();
    // Leaves the group and session that the other process's signals go to. A group leader has
    // already left.
    let _leads = setsid();
    let signals = sys::signal_descriptor(sys::bit(libc::SIGCHLD));
    signals.map_err(SpawnFailure::at(Step::Signals))
}

fn keeper<'s>(
    told: &'s Words,
    control: &'s OwnedFd,
    program: OwnedFd,
    signals: OwnedFd,
    room: &'s mut Room,
) -> Result<Keeper<'s>, SpawnFailure> {
    // The process that made the pair. It may be gone; then the pair is closed, which is detected.
    let owner = socket_peercred(control).ok();
    let owner = owner.and_then(|owner| pidfd_open(owner.pid, PidfdFlags::empty()).ok());
    let main = own_child(told.main).ok_or(SpawnFailure {
        step: Step::Fork,
        errno: Errno::CHILD,
    })?;
    let leaf = told.leaf.as_deref().and_then(Leaf::make);
    match release(told, main, leaf, &program) {
        Ok((leaf, enforced)) => {
            drop(program);
            let ends = Ends {
                control,
                owner,
                signals,
            };
            let keeper = Keeper::new(main, enforced, ends, leaf, room, told.orphan_grace);
            // An owner that is gone does not receive it: then the tree is ended, as usual.
            let _owner_gone = keeper.settle(false);
            Ok(keeper)
        }
        Err(failed) => {
            // It waits for this keeper or has ended: nothing of it may be left when this is
            // reported.
            let _gone = sys::signal_child(main, libc::SIGKILL);
            let _reaped = sys::reap(Some(main), true);
            Err(failed)
        }
    }
}

/// The program, if it is the unreaped child of this process.
fn own_child(main: Option<u32>) -> Option<u32> {
    let me = getpid().as_raw_nonzero().get().unsigned_abs();
    main.filter(|main| kin::stat(*main, |stat| stat.ppid) == Some(me))
}

/// Waits until the program is ready, applies its limits, and releases it.
fn release<'s>(
    told: &Words,
    main: u32,
    mut leaf: Option<Leaf<'s>>,
    program: &OwnedFd,
) -> Result<(Option<Leaf<'s>>, crate::limits::EnforcedLimits), SpawnFailure> {
    let result = said(program).and_then(|()| {
        // It has no descendants yet, so its whole tree will be in there.
        let is_in = leaf
            .as_ref()
            .is_some_and(|leaf| leaf.set(c"cgroup.procs", main.to_string().as_bytes()));
        if !is_in && let Some(leaf) = leaf.take() {
            leaf.remove();
        }
        let wanted = RequestedLimits::new(told.limits);
        let enforced = wanted.give(leaf.as_ref());
        let pid = i32::try_from(main).ok().and_then(Pid::from_raw);
        wanted
            .put(pid, enforced)
            .map_err(SpawnFailure::at(Step::Limit))?;
        write(program, b"g").map_err(SpawnFailure::at(Step::Pipe))?;
        Ok(enforced)
    });
    match result {
        Ok(enforced) => Ok((leaf, enforced)),
        Err(failed) => {
            if let Some(leaf) = leaf {
                leaf.kill();
                leaf.remove();
            }
            Err(failed)
        }
    }
}

/// The program's own report.
fn said(program: &OwnedFd) -> Result<(), SpawnFailure> {
    let mut bytes = [0; 64];
    let length = loop {
        match read(program, &mut bytes) {
            Err(Errno::INTR) => {}
            result => break result.map_err(SpawnFailure::at(Step::Pipe))?,
        }
    };
    judge(bytes.get(..length).unwrap_or_default())
}

fn judge(said: &[u8]) -> Result<(), SpawnFailure> {
    let text = std::str::from_utf8(said).unwrap_or_default();
    let mut words = text.split_ascii_whitespace();
    let (word, errno) = (words.next().unwrap_or_default(), words.next());
    if word == "ready" {
        return Ok(());
    }
    let errno = errno.and_then(|errno| errno.parse().ok());
    Err(SpawnFailure {
        step: Step::from_word(word),
        // It ended without a report.
        errno: Errno::from_raw_os_error(errno.unwrap_or(libc::EPIPE)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_says_that_it_is_ready_or_what_it_could_not_do() {
        assert!(judge(b"ready\n").is_ok());
        let failed = judge(b"folder 2\n").unwrap_err();
        assert_eq!((failed.step, failed.errno), (Step::Dir, Errno::NOENT));
        let failed = judge(b"").unwrap_err();
        assert_eq!((failed.step, failed.errno), (Step::Unknown, Errno::PIPE));
        let failed = judge(b"\xff\xff 1").unwrap_err();
        assert_eq!(failed.step, Step::Unknown);
    }
}
