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
use crate::sys::{self, ForkResult};

/// What a keeper is called, for people and for those who look for keepers.
pub(crate) const NAME: &CStr = c"fdguard-keeper";

/// Everything that a keeper needs, made before its fork.
#[derive(Debug)]
pub(crate) struct Setup<'s> {
    pub(crate) prepared: &'s mut PreparedChild,
    /// Its end of the pair that it talks through.
    pub(crate) control: OwnedFd,
    /// The numbers that must stay open until the program runs, `control` included, smallest first.
    pub(crate) needed: &'s [c_int],
    pub(crate) room: &'s mut Room,
    /// The cgroup that it may try to make.
    pub(crate) leaf: Option<&'s CStr>,
    /// From the owner's end to the first KILL.
    pub(crate) orphan_grace: Duration,
    /// The owner wants a descriptor of the program's process.
    pub(crate) keep_pidfd: bool,
}

/// Forks a keeper and gives its number. It is born without a signal: the owner's own waits for
/// children do not see it.
pub(crate) fn fork(mut setup: Setup<'_>) -> Result<u32, Errno> {
    let (owner, group) = (getpid(), sys::own_group());
    // A handler of the owner must not run in the keeper.
    let before = sys::block_signals(sys::ALL_SIGNALS);
    let birth = ForkResult {
        exit_signal: 0,
        cgroup: None,
    };
    // SAFETY: `enter` and all that it calls neither allocate nor lock, and it does not return or
    // unwind.
    let forked = unsafe { sys::fork(birth) };
    if let Ok(None) = forked {
        enter(&mut setup, owner, group);
    }
    sys::block_signals(before);
    Ok(forked?.unwrap_or_default())
}

/// The keeper's life. The C convention makes a panic an abort: it must never unwind into the
/// owner's frames.
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
    // First, for the owner's table may be full: what follows needs a few numbers.
    close_others(setup.needed).map_err(SpawnFailure::at(Step::CloseRange))?;
    sys::forget_handlers();
    set_child_subreaper(Some(getpid())).map_err(SpawnFailure::at(Step::Subreaper))?;
    // Without a name everything works.
    let _nameless = set_name(NAME);
    wake_with_parent();
    match setup.prepared.group() {
        SessionKind::Session => setsid().map(drop),
        // A group that has no number here cannot be joined again: the program stays in it by birth.
        // Signals for it are blocked in us.
        SessionKind::Same if group.is_none() => Ok(()),
        // Out of the group that a terminal or a supervisor signals, in the session that the program
        // shall be in.
        SessionKind::Own | SessionKind::Same => setpgid(None, None),
    }
    .map_err(SpawnFailure::at(Step::Group))?;
    let signals = sys::signal_descriptor(sys::bit(libc::SIGCHLD));
    let signals = signals.map_err(SpawnFailure::at(Step::Signals))?;
    // Besides the end of file on `control`: a copy of the owner that was forked without an exec
    // could hold that open.
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

/// What the keeper listens to.
#[derive(Debug)]
struct Ends<'s> {
    control: &'s OwnedFd,
    owner: Option<OwnedFd>,
    signals: OwnedFd,
}

/// Makes the program's process and waits until it runs or cannot; tells who sees to its limits. A
/// cgroup that it cannot be born into is given up.
fn launch(
    prepared: &mut PreparedChild,
    group: Option<Pid>,
    leaf: &mut Option<Leaf<'_>>,
) -> Result<(u32, EnforcedLimits), SpawnFailure> {
    let (errors, told) = pipe_with(PipeFlags::CLOEXEC).map_err(SpawnFailure::at(Step::Pipe))?;
    let mut birth = ForkResult {
        exit_signal: libc::SIGCHLD,
        cgroup: leaf.as_ref().map(Leaf::dir),
    };
    let mut enforced = prepared.wanted().give(leaf.as_ref());
    // SAFETY: the keeper keeps the rules of a forked process itself, and its child goes straight to
    // `run`, which does not return.
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
    // The end of file comes from the exec, or from an end by a signal before it: that is told as
    // the program's own.
    if length != SpawnFailure::LENGTH {
        return Ok((main, enforced));
    }
    // It has ended or is about to: nothing of it may be left when this is told.
    let _reaped = sys::reap(Some(main), true);
    Err(SpawnFailure::decode(bytes))
}

/// One of the tree may have stopped us when the owner ends: then nobody else lets us go on. The
/// kernel sends it too when only the thread ends that forked us, and one that is not stopped takes
/// no notice.
fn wake_with_parent() {
    let _unheard = set_parent_process_death_signal(Some(Signal::CONT));
}

/// Closes every descriptor but these.
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
