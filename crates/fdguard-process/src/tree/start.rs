//! The owner's part of a start: everything is prepared, the keeper is forked, and its first message
//! decides.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, send, socketpair};

use super::receive::{KeeperMessage, receive};
use super::{KeeperProcess, StartError, StopPlan, Tree};
use crate::adopt;
use crate::cgroup;
use crate::keeper::message::{FromKeeper, Step, ToKeeper};
use crate::keeper::{self, Room, Setup};
use crate::limits::EnforcedLimits;
use crate::mark;
use crate::plan::{Plan, TreeLimits};
use crate::spawn::{BadPlan, PreparedChild};
use crate::sweep;
use crate::sys;

/// A keeper that is silent for this long gets SIGCONT.
const WAKE_AFTER: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// A keeper that is found stopped this often in a row is held: the start fails.
const MOST_WAKES: u32 = 20;
/// KILL takes milliseconds.
const LONGEST_END: Duration = Duration::from_secs(2);

pub(super) fn start(
    plan: &Plan,
    orphan_grace: Duration,
    keep_pidfd: bool,
) -> Result<Tree, StartError> {
    let unfit = |why: BadPlan| StartError::Refused {
        step: "cannot start the program",
        source: io::Error::new(io::ErrorKind::InvalidInput, why.0),
    };
    let mark = mark::next();
    let mut prepared = PreparedChild::new(plan, mark.as_deref()).map_err(unfit)?;
    let leaf = if plan.cgroup {
        cgroup::next_path(plan.limits != TreeLimits::default())
    } else {
        None
    };
    let flags = SocketFlags::CLOEXEC;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (ours, theirs) = pair.map_err(StartError::refused(Step::Keeper))?;
    let mut needed = prepared.sources();
    needed.push(theirs.as_raw_fd());
    needed.sort_unstable();
    let setup = Setup {
        prepared: &mut prepared,
        control: theirs,
        needed: &needed,
        room: &mut Room::new(),
        leaf: leaf.as_deref(),
        orphan_grace,
        keep_pidfd,
    };
    let keeper = {
        let mut own = adopt::own();
        let keeper = keeper::fork(setup).map_err(StartError::refused(Step::Keeper))?;
        own.add(keeper);
        keeper
    };
    if !await_word(&ours, keeper) {
        end_held(keeper);
    }
    match introduced(&ours, RecvFlags::empty(), keep_pidfd) {
        Ok(KeeperGreeting::Started(started)) => {
            let keeper = own_child(keeper);
            Ok(Tree::new(keeper, ours, started, leaf, mark))
        }
        Ok(KeeperGreeting::Failed { step, errno }) => {
            reap(keeper);
            Err(failure(plan, &prepared, step, errno))
        }
        Err(errno) => {
            abandon(ours, keeper);
            let step = if errno == Errno::MFILE {
                Step::Pidfd
            } else {
                Step::Keeper
            };
            Err(StartError::refused(step)(errno))
        }
    }
}

/// Waits for the keeper's first message. The program is already running by then, and may have
/// stopped the keeper. False if the keeper is held.
fn await_word(control: &OwnedFd, keeper: u32) -> bool {
    let own = own_child(keeper);
    let mut wakes = 0;
    while wakes < MOST_WAKES {
        let mut fds = [PollFd::new(control, PollFlags::IN)];
        match poll(&mut fds, Some(&WAKE_AFTER)) {
            Ok(0) => {
                wakes = if own.is_held() { wakes + 1 } else { 0 };
                wake(keeper);
            }
            Err(Errno::INTR) => {}
            _ => return true,
        }
    }
    false
}

/// Ends everything below a keeper that cannot report it, and the keeper. This closes its end of the
/// pair.
fn end_held(keeper: u32) {
    let deadline = Instant::now() + LONGEST_END;
    while !sweep::kill_below(own_child(keeper)).is_empty() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let _gone = sys::signal_child(keeper, libc::SIGKILL);
}

fn own_child(keeper: u32) -> KeeperProcess {
    KeeperProcess {
        pid: keeper,
        started: None,
    }
}

/// CONT has no effect on a keeper that is not stopped.
fn wake(keeper: u32) {
    let _gone = sys::signal_child(keeper, libc::SIGCONT);
}

/// The first message of a keeper.
pub(super) enum KeeperGreeting {
    Started(StartedProgram),
    Failed { step: Step, errno: Errno },
}

/// A running program.
pub(super) struct StartedProgram {
    pub(super) main: u32,
    /// Its start, in ticks since boot.
    pub(super) at: u64,
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) in_cgroup: bool,
    pub(super) enforced: EnforcedLimits,
    pub(super) keeper: u32,
    pub(super) keeper_at: u64,
}

pub(super) fn introduced(
    control: &OwnedFd,
    flags: RecvFlags,
    keep_pidfd: bool,
) -> Result<KeeperGreeting, Errno> {
    loop {
        return match receive(control, flags) {
            Err(Errno::INTR) => continue,
            Err(errno) => Err(errno),
            Ok(KeeperMessage::Message(
                FromKeeper::Started {
                    main,
                    at,
                    in_cgroup,
                    enforced,
                    keeper,
                    keeper_at,
                },
                pidfd,
            )) => {
                // The kernel drops a descriptor if the table is full.
                if keep_pidfd && pidfd.is_none() {
                    return Err(Errno::MFILE);
                }
                Ok(KeeperGreeting::Started(StartedProgram {
                    main,
                    at,
                    pidfd,
                    in_cgroup,
                    enforced,
                    keeper,
                    keeper_at,
                }))
            }
            Ok(KeeperMessage::Message(FromKeeper::Failed { step, errno }, _)) => {
                Ok(KeeperGreeting::Failed { step, errno })
            }
            Ok(KeeperMessage::Message(..) | KeeperMessage::End) => Err(Errno::PIPE),
        };
    }
}

/// Ends a tree that its owner could not accept.
fn abandon(control: OwnedFd, keeper: u32) {
    let at_once = StopPlan {
        signal: libc::SIGKILL,
        grace: Duration::ZERO,
    };
    let _unheard = send(
        &control,
        &ToKeeper::Stop(at_once).encode(),
        SendFlags::NOSIGNAL,
    );
    drop(control);
    wake(keeper);
    reap(keeper);
}

/// Waits for the end of a keeper that has nothing left to keep.
fn reap(keeper: u32) {
    let mut own = adopt::own();
    let _reaped = sys::reap(Some(keeper), true);
    own.forget(keeper);
}

fn failure(plan: &Plan, prepared: &PreparedChild, step: Step, errno: Errno) -> StartError {
    if step != Step::Exec {
        return StartError::refused(step)(errno);
    }
    let program = plan
        .command
        .first()
        .map(|program| program.to_string_lossy().into_owned());
    let program = program.unwrap_or_default();
    match errno {
        // If an existing file is not found, its interpreter is missing.
        Errno::NOENT | Errno::NOTDIR if !prepared.is_somewhere() => {
            StartError::NotFound { program }
        }
        Errno::NOENT => StartError::NotRunnable {
            program,
            source: io::Error::new(io::ErrorKind::NotFound, "interpreter not found"),
        },
        other => StartError::NotRunnable {
            program,
            source: other.into(),
        },
    }
}
