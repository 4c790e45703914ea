//! The keeper of one tree: forked from the owner without exec, parent of the program, and as
//! subreaper parent of every orphan below it. It ends only when nothing is left. Nothing here
//! allocates, locks or panics, because the owner may have had other threads.

#![expect(
    unsafe_code,
    reason = "two forks, whose children keep the rules of a forked process"
)]

mod ahead;
mod here;
mod kin;
pub(crate) mod message;
mod name;
mod phase;
mod watch;
pub(crate) mod words;

use std::ffi::{CStr, c_int};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::Duration;

use rustix::io::{Errno, read};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, chdir, getpid, getppid, pidfd_open, set_child_subreaper,
    set_parent_process_death_signal, setpgid, setsid,
};
use rustix::thread::set_name;

pub use here::keep_here;
pub(crate) use kin::{Room, pin_descendant};
use message::{FromKeeper, Step};
use watch::Keeper;

use crate::cgroup::Leaf;
use crate::limits::EnforcedLimits;
use crate::plan::SessionKind;
use crate::spawn::PreparedChild;
use crate::spawn::child::{self, SpawnFailure};
use crate::sys::{self, ForkMode};

/// The name of a keeper's process, for people and for code that looks for keepers.
pub(crate) const NAME: &CStr = c"fdguard-keeper";

/// Everything that a keeper needs, prepared before its fork.
#[derive(Debug)]
pub(crate) struct Setup<'s> {
    pub(crate) prepared: &'s mut PreparedChild,
    /// Its end of the pair.
    pub(crate) control: OwnedFd,
    /// The numbers that must stay open until the program runs, including `control`, smallest first.
    pub(crate) needed: &'s [c_int],
    pub(crate) room: &'s mut Room,
    /// The cgroup that it may try to create.
    pub(crate) leaf: Option<&'s CStr>,
    /// From the owner's end to the first KILL.
    pub(crate) orphan_grace: Duration,
    /// The owner wants a pidfd of the program.
    pub(crate) keep_pidfd: bool,
}

/// Forks a keeper and returns its pid. It has no exit signal, so the owner's own waits for children
/// do not see it.
pub(crate) fn fork(mut setup: Setup<'_>) -> Result<u32, Errno> {
    let (owner, group) = (getpid(), sys::own_group());
    // A signal handler of the owner must not run in the keeper.
    let before = sys::block_signals(sys::ALL_SIGNALS);
    let birth = ForkMode {
        exit_signal: 0,
        cgroup: None,
    };
    // SAFETY: `enter` and everything that it calls neither allocate nor lock, and it neither
    // returns nor unwinds.
    let forked = unsafe { sys::fork(birth) };
    if let Ok(None) = forked {
        enter(&mut setup, owner, group);
    }
    sys::block_signals(before);
    Ok(forked?.unwrap_or_default())
}

/// The keeper's main function. The C convention turns a panic into an abort: it must never unwind
/// into the owner's frames.
extern "C" fn enter(setup: &mut Setup<'_>, owner: Pid, group: Option<Pid>) -> ! {
    match start(setup, owner, group) {
        Ok(keeper) => keeper.keep(),
        Err(failed) => {
            let SpawnFailure { step, errno } = failed;
            watch::say(&setup.control, FromKeeper::Failed { step, errno });
            sys::exit(1)
        }
    }
}

fn start<'s>(
    setup: &'s mut Setup<'_>,
    owner: Pid,
    group: Option<Pid>,
) -> Result<Keeper<'s>, SpawnFailure> {
    // First, because the owner's table may be full: what follows needs a few numbers.
    close_others(setup.needed).map_err(SpawnFailure::at(Step::CloseRange))?;
    sys::forget_handlers();
    set_child_subreaper(Some(getpid())).map_err(SpawnFailure::at(Step::Subreaper))?;
    // The name is not essential.
    let _nameless = set_name(NAME);
    wake_with_parent();
    match setup.prepared.group() {
        SessionKind::Session => setsid().map(drop),
        // A group that has no number here cannot be joined again: the program inherits it. The
        // keeper blocks signals to it.
        SessionKind::Same if group.is_none() => Ok(()),
        // Leave the group that a terminal or a supervisor signals, but stay in the session that the
        // program belongs in.
        SessionKind::Own | SessionKind::Same => setpgid(None, None),
    }
    .map_err(SpawnFailure::at(Step::Group))?;
    let signals = sys::signal_descriptor(sys::bit(libc::SIGCHLD));
    let signals = signals.map_err(SpawnFailure::at(Step::Signals))?;
    // In addition to the end of file on `control`: a copy of the owner that was forked without an
    // exec could hold that open.
    let owner_end = pidfd_open(owner, PidfdFlags::empty()).ok();
    if getppid() != Some(owner) {
        sys::exit(1);
    }
    let mut leaf = setup.leaf.and_then(Leaf::make);
    let result = launch(setup.prepared, group, &mut leaf);
    let (main, enforced) = match result {
        Ok(launched) => launched,
        Err(failed) => {
            if let Some(leaf) = &leaf {
                leaf.remove();
            }
            return Err(failed);
        }
    };
    let keeper = Keeper::new(
        main,
        enforced,
        Ends {
            control: &setup.control,
            owner: owner_end,
            signals,
        },
        leaf,
        setup.room,
        setup.orphan_grace,
    );
    keeper.settle(setup.keep_pidfd)?;
    Ok(keeper)
}

/// What the keeper waits for.
#[derive(Debug)]
struct Ends<'s> {
    control: &'s OwnedFd,
    owner: Option<OwnedFd>,
    signals: OwnedFd,
}

/// Creates the program's process and waits until it runs or has failed; returns how its limits are
/// enforced. A cgroup that it cannot start in is given up.
fn launch(
    prepared: &mut PreparedChild,
    group: Option<Pid>,
    leaf: &mut Option<Leaf<'_>>,
) -> Result<(u32, EnforcedLimits), SpawnFailure> {
    let (errors, told) = pipe_with(PipeFlags::CLOEXEC).map_err(SpawnFailure::at(Step::Pipe))?;
    let mut birth = ForkMode {
        exit_signal: libc::SIGCHLD,
        cgroup: leaf.as_ref().map(Leaf::dir),
    };
    let mut enforced = prepared.wanted().give(leaf.as_ref());
    // SAFETY: the keeper itself follows the rules of a forked process, and its child goes straight
    // to `run`, which does not return.
    let mut forked = unsafe { sys::fork(birth) };
    if forked.is_err() && birth.cgroup.take().is_some() {
        enforced = prepared.wanted().give(None);
        // SAFETY: as above.
        forked = unsafe { sys::fork(birth) };
        if forked != Ok(None)
            && let Some(leaf) = leaf.take()
        {
            leaf.remove();
        }
    }
    let Some(main) = forked.map_err(SpawnFailure::at(Step::Fork))? else {
        child::run(prepared, enforced, group, told.as_raw_fd());
    };
    drop(told);
    let mut bytes = [0; SpawnFailure::LENGTH];
    let length = loop {
        match read(errors.as_fd(), &mut bytes) {
            Err(Errno::INTR) => {}
            result => break result.unwrap_or(0),
        }
    };
    // The end of file comes from the exec, or from a signal that ended the child before it: that is
    // reported as the program's own end.
    if length != SpawnFailure::LENGTH {
        return Ok((main, enforced));
    }
    // It has ended or is about to: nothing of it may be left when this is reported.
    let _reaped = sys::reap(Some(main), true);
    Err(SpawnFailure::decode(bytes))
}

/// A process of the tree may have stopped the keeper when the owner ends: then nothing else
/// continues it. The kernel also sends this signal when only the thread that forked the keeper
/// ends, and it has no effect on one that is not stopped.
fn wake_with_parent() {
    let _unheard = set_parent_process_death_signal(Some(Signal::CONT));
}

/// Closes every descriptor except these.
fn close_others(needed: &[c_int]) -> Result<(), Errno> {
    let mut first = 0;
    for keep in needed.iter().map(|number| number.unsigned_abs()) {
        if first < keep {
            sys::close_range(first, keep - 1, false)?;
        }
        first = first.max(keep.saturating_add(1));
    }
    sys::close_range(first, u32::MAX, false)
}

/// Changes to the root directory, so that no mount is kept busy.
fn leave_dir() {
    let _stays = chdir(c"/");
}
