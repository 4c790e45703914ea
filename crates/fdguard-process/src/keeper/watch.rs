//! The keeper's loop: it reaps, reports, and ends the tree on request or when its owner is gone.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use fdguard_proc::clock::monotonic_nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg,
    send, sendmsg,
};
use rustix::process::getpid;

use super::message::{FromKeeper, LENGTH, Step, ToKeeper};
use super::phase::{Due, Phase};
use super::{Ends, Room, close_others, kin, leave_dir};
use crate::cgroup::Leaf;
use crate::limits::EnforcedLimits;
use crate::spawn::child::SpawnFailure;
use crate::sys::{self, ReapedChild};
use crate::tree::{Exit, StopPlan, Usage};

/// The first pause between two sweeps that killed nothing; it doubles up to the longest.
const SHORTEST_PAUSE: u64 = 1_000_000;
const LONGEST_PAUSE: u64 = 200_000_000;

/// A keeper whose program was started.
#[derive(Debug)]
pub(super) struct Keeper<'s> {
    me: u32,
    main: u32,
    enforced: EnforcedLimits,
    main_exit: Option<ReapedChild>,
    /// Whether the owner was informed that the program ended.
    main_told: bool,
    ends: Ends<'s>,
    owner_lives: bool,
    leaf: Option<Leaf<'s>>,
    room: &'s mut Room,
    orphan_grace: Duration,
    phase: Phase,
    pause: u64,
    killed: u32,
    reaped: u32,
}

/// Whether anything is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemainingKin {
    /// Children that are alive or may be.
    Children,
    /// No child, but the cgroup is not empty: a process in it left the tree in another way.
    Cgroup,
    Nothing,
}

impl<'s> Keeper<'s> {
    pub(super) fn new(
        main: u32,
        enforced: EnforcedLimits,
        ends: Ends<'s>,
        leaf: Option<Leaf<'s>>,
        room: &'s mut Room,
        orphan_grace: Duration,
    ) -> Self {
        Self {
            me: getpid().as_raw_nonzero().get().unsigned_abs(),
            main,
            enforced,
            main_exit: None,
            main_told: false,
            ends,
            owner_lives: true,
            leaf,
            room,
            orphan_grace,
            phase: Phase::Running,
            pause: SHORTEST_PAUSE,
            killed: 0,
            reaped: 0,
        }
    }

    /// Drops everything that belonged to the owner or belongs to the program alone, and reports
    /// that the program runs.
    pub(super) fn settle(&self, keep_pidfd: bool) -> Result<(), SpawnFailure> {
        let mut keep = [-1; 6];
        let ours = [
            Some(self.ends.control.as_fd()),
            self.ends.owner.as_ref().map(AsFd::as_fd),
            Some(self.ends.signals.as_fd()),
        ];
        let leafs = self.leaf.as_ref().map(Leaf::descriptors);
        let all = ours
            .into_iter()
            .flatten()
            .chain(leafs.into_iter().flatten());
        for (room, fd) in keep.iter_mut().zip(all) {
            *room = fd.as_raw_fd();
        }
        keep.sort_unstable();
        let unused = keep.iter().take_while(|number| **number < 0).count();
        close_others(keep.get(unused..).unwrap_or_default())
            .map_err(SpawnFailure::at(Step::CloseRange))?;
        leave_dir();
        // Not reaped yet, so this pid can only be the program.
        let at = kin::stat(self.main, |stat| stat.start_ticks).unwrap_or(0);
        let result = if keep_pidfd {
            let pidfd = kin::open_pidfd(self.main);
            pidfd.and_then(|pidfd| self.introduce(at, &[pidfd.as_fd()]))
        } else {
            self.introduce(at, &[])
        };
        result.map_err(|errno| {
            self.abandon();
            SpawnFailure {
                step: Step::Pidfd,
                errno,
            }
        })
    }

    /// Kills what was just started.
    fn abandon(&self) {
        let _gone = sys::signal_child(self.main, libc::SIGKILL);
        let _reaped = sys::reap(Some(self.main), true);
        if let Some(leaf) = &self.leaf {
            leaf.kill();
            leaf.remove();
        }
    }

    fn introduce(&self, at: u64, pidfd: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let told = FromKeeper::Started {
            main: self.main,
            at,
            in_cgroup: self.leaf.is_some(),
            enforced: self.enforced,
            keeper: self.me,
            keeper_at: kin::stat(self.me, |stat| stat.start_ticks).unwrap_or(0),
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !pidfd.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(pidfd));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let bytes = told.encode();
        sendmsg(
            self.ends.control,
            &[IoSlice::new(&bytes)],
            &mut control,
            flags,
        )
        .map(drop)
    }

    /// Runs until nothing is left.
    pub(super) fn keep(mut self) -> ! {
        loop {
            let left = self.reap();
            // Before the report, which examines every process that is left.
            let due = self.phase.due(self.main_exit.is_none(), monotonic_nanos());
            self.act(due);
            self.tell_main();
            if left == RemainingKin::Nothing {
                self.finish();
            }
            self.wait(left);
            self.listen();
        }
    }

    fn finish(&self) -> ! {
        if let Some(leaf) = &self.leaf {
            leaf.remove();
        }
        // There always is one: the program was a child, and no child is left.
        let exit = self.main_exit.map_or(Exit::Signal(0), |main| main.exit);
        let (killed, reaped) = (self.killed, self.reaped);
        say(
            self.ends.control,
            FromKeeper::Empty {
                exit,
                killed,
                reaped,
            },
        );
        sys::exit(0)
    }

    fn reap(&mut self) -> RemainingKin {
        loop {
            match sys::reap(None, false) {
                Ok(Some(ended)) => self.count(ended),
                Err(Errno::CHILD) => break,
                Err(Errno::INTR) => {}
                Ok(None) | Err(_) => return RemainingKin::Children,
            }
        }
        match &self.leaf {
            Some(leaf) if leaf.is_populated() => RemainingKin::Cgroup,
            _ => RemainingKin::Nothing,
        }
    }

    fn count(&mut self, ended: ReapedChild) {
        self.pause = SHORTEST_PAUSE;
        if self.phase == Phase::Killing && ended.exit == Exit::Signal(libc::SIGKILL) {
            self.killed = self.killed.saturating_add(1);
        }
        if ended.pid == self.main && self.main_exit.is_none() {
            self.main_exit = Some(ended);
        } else {
            self.reaped = self.reaped.saturating_add(1);
        }
    }

    fn tell_main(&mut self) {
        let Some(main) = self.main_exit.filter(|_| !self.main_told) else {
            return;
        };
        self.main_told = true;
        let memory_kills = self.leaf.as_ref().and_then(Leaf::memory_kills);
        let told = FromKeeper::MainEnded {
            exit: main.exit,
            left: kin::count(self.me, self.room),
            usage: Usage {
                memory_kills,
                ..main.usage
            },
        };
        say(self.ends.control, told);
    }

    fn act(&mut self, due: Due) {
        let (me, main) = (self.me, self.main);
        match due {
            Due::Nothing => {}
            Due::AskMain(signal) => {
                kin::forget_asked(self.room);
                if self.main_exit.is_none() {
                    kin::signal(me, main, true, signal);
                }
            }
            Due::AskAll(signal) => kin::each_unasked(me, self.room, &mut |pid, is_child| {
                if pid != main {
                    kin::signal(me, pid, is_child, signal);
                }
            }),
            Due::Kill => {
                if let Some(leaf) = &self.leaf {
                    leaf.kill();
                }
                if self.main_exit.is_none() {
                    let _gone = sys::signal_child(main, libc::SIGKILL);
                }
                // Each is an unreaped child, so its pid is its own. Their children become this
                // keeper's and are met by the next sweep.
                kin::each_child(me, self.room, &mut |pid| {
                    let _gone = sys::signal_child(pid, libc::SIGKILL);
                });
            }
        }
    }

    fn wait(&mut self, left: RemainingKin) {
        let moment = monotonic_nanos();
        let next = self.phase.next(self.main_exit.is_none());
        let mut pause = next.map(|at| at.saturating_sub(moment));
        // A signal reports a child's end, but not a process that is reparented to the keeper, so
        // check again.
        if self.phase == Phase::Killing || left == RemainingKin::Cgroup {
            pause = Some(pause.map_or(self.pause, |pause| pause.min(self.pause)));
            self.pause = self.pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
        let timeout = pause.map(|pause| Timespec {
            tv_sec: i64::try_from(pause / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(pause % 1_000_000_000).unwrap_or(0),
        });
        let signals = PollFd::from_borrowed_fd(self.ends.signals.as_fd(), PollFlags::IN);
        // Unused entries repeat the signals, which is harmless.
        let mut fds = [signals.clone(), signals.clone(), signals.clone(), signals];
        let [_, control, owner, cgroup] = &mut fds;
        if self.owner_lives {
            *control = PollFd::from_borrowed_fd(self.ends.control.as_fd(), PollFlags::IN);
            if let Some(end) = &self.ends.owner {
                *owner = PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN);
            }
        }
        if let (RemainingKin::Cgroup, Some(leaf)) = (left, &self.leaf) {
            *cgroup = PollFd::from_borrowed_fd(leaf.events(), PollFlags::PRI);
        }
        // Interrupted or refused: the next iteration checks again.
        let _happened = poll(&mut fds, timeout.as_ref());
        let owner_ended =
            self.owner_lives && self.ends.owner.is_some() && !fds[2].revents().is_empty();
        if owner_ended && self.owner_is_gone() {
            self.orphaned();
        }
    }

    /// The entry in the list may have been the signals': checks the owner's pidfd separately.
    fn owner_is_gone(&self) -> bool {
        let Some(owner) = &self.ends.owner else {
            return false;
        };
        let mut fds = [PollFd::from_borrowed_fd(owner.as_fd(), PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    fn listen(&mut self) {
        let mut told = [0; 512];
        while read(&self.ends.signals, &mut told).is_ok() {}
        while self.owner_lives {
            let mut bytes = [0; LENGTH];
            match receive(self.ends.control, &mut bytes) {
                Ok(0) => self.orphaned(),
                Ok(length) => {
                    if let Some(heard) = bytes.get(..length).and_then(ToKeeper::decode) {
                        self.obey(heard);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.orphaned(),
            }
        }
    }

    fn obey(&mut self, heard: ToKeeper) {
        let (me, main) = (self.me, self.main);
        match heard {
            ToKeeper::Stop(stop) => self.ask(stop),
            ToKeeper::Signal(signal) => {
                // Once it is reaped, its pid may belong to any process.
                if self.main_exit.is_none() {
                    let _gone = sys::signal_child(main, signal);
                }
            }
            ToKeeper::SignalAll {
                signal,
                except_main,
            } => kin::each(me, self.room, &mut |pid, is_child| {
                if pid != main || !except_main {
                    let _gone = kin::send(me, pid, is_child, signal);
                }
            }),
        }
    }

    fn ask(&mut self, stop: StopPlan) {
        let due = self.phase.ask(stop, monotonic_nanos());
        self.act(due);
    }

    /// The owner is gone: end the tree.
    fn orphaned(&mut self) {
        if self.owner_lives {
            self.owner_lives = false;
            self.ask(StopPlan {
                signal: libc::SIGTERM,
                grace: self.orphan_grace,
            });
        }
    }
}

fn receive(control: &OwnedFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    let mut none = RecvAncillaryBuffer::default();
    let mut room = [IoSliceMut::new(bytes)];
    recvmsg(control, &mut room, &mut none, RecvFlags::DONTWAIT).map(|heard| heard.bytes)
}

/// Sends a message to the owner. The socket has room for everything that a keeper ever sends; an
/// owner that is gone does not receive it.
pub(super) fn say(control: &OwnedFd, told: FromKeeper) {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _unheard = send(control, &told.encode(), flags);
}
