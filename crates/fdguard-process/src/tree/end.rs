//! The end of a tree, however its processes treat their keeper: a stopped one is continued again
//! and again, then its tree is ended from outside. The end comes at most seven seconds after KILL
//! was due.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::oversight::Step;
use super::{StopPlan, Tree, TreeEvent};
use crate::adopt;
use crate::keeper::message::ToKeeper;
use crate::members;
use crate::strays;
use crate::sweep;
use crate::sys;

/// A killed keeper closes its end a moment before it has ended.
const LONGEST_LOST: Duration = Duration::from_secs(1);

impl Tree {
    /// Requests the end. Another call with a shorter grace speeds it up; no grace means KILL at
    /// once.
    pub fn stop(&mut self, how: StopPlan) {
        self.say(ToKeeper::Stop(how));
        self.oversight.asked(Instant::now(), how.grace);
    }

    /// Waits until there may be an event, or until this moment.
    pub fn wait(&self, until: Instant) {
        let interest = self.interest();
        let until = interest.until.map_or(until, |look| look.min(until));
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or_default();
        let fds = interest.fds.into_iter().flatten();
        let mut fds: Vec<_> = fds
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // Interrupted: the caller checks again.
        let _happened = poll(&mut fds, Some(&timeout));
    }

    /// Checks a silent keeper, if it is time to.
    pub(super) fn check_keeper(&mut self, now: Instant) -> Option<TreeEvent> {
        if self.program_end().is_some_and(is_readable) {
            self.oversight.main_ended(now);
        }
        if self.deadline().is_none_or(|at| now < at) {
            return None;
        }
        let is_held = self.keeper.is_held();
        if is_held && !self.main_reported && !self.program().is_alive() {
            self.oversight.main_ended(now);
        }
        match self.oversight.step(now, is_held) {
            Step::Wait => {}
            Step::Wake => self.wake(),
            Step::Sweep => {
                let living = sweep::kill_below(self.keeper);
                self.oversight.swept(now, living);
                self.wake();
            }
            Step::KillKeeper => self.keeper.signal(libc::SIGKILL),
            Step::GiveUp => return Some(self.give_up(is_held)),
        }
        None
    }

    /// Continues a keeper that one of its own processes has stopped: it cannot defend itself
    /// against that.
    pub(super) fn wake(&self) {
        if !self.keeper_ended {
            self.keeper.signal(libc::SIGCONT);
        }
    }

    /// Part of the tree cannot be ended, or not even its keeper dies.
    fn give_up(&mut self, is_held: bool) -> TreeEvent {
        if is_held {
            self.keeper.signal(libc::SIGKILL);
        }
        let left = members::below(self.keeper.pid).len();
        self.is_over = true;
        self.orphans_left = u32::try_from(left).ok();
        TreeEvent::Lost
    }

    /// Ends the known processes of a tree whose keeper was killed.
    pub(super) fn lost(&mut self) {
        let seen = std::mem::take(self.seen.get_mut().unwrap_or_else(PoisonError::into_inner));
        let leaf = self.leaf.as_deref();
        let marked = strays::end(self.program(), &seen, leaf, self.mark.as_deref());
        if self.keeper.started.is_none() {
            self.orphans_left = adopt::end_orphans_of(self.keeper.pid);
        } else if let Some(pidfd) = adopt::open(self.keeper.pid).filter(|_| self.keeper.is_there())
        {
            // Its orphans are reparented once it has ended, and not before.
            adopt::await_end(&pidfd, Instant::now() + LONGEST_LOST);
        }
        // Either the owner killed the keeper when nothing was left below it, or some processes are
        // known to be left.
        if self.orphans_left.is_none() && (self.oversight.is_empty() || marked > 0) {
            self.orphans_left = u32::try_from(marked).ok();
        }
    }

    /// Reaps a keeper that is a child of this process. It closed its end as the last thing before
    /// it ended, or it stays alive until its tree is gone, and knows that its owner is. A traced
    /// keeper cannot be reaped until its tracer detaches.
    fn reap_keeper(&self) {
        let mut own = adopt::own();
        let reap = |wait| matches!(sys::reap(Some(self.keeper.pid), wait), Ok(Some(_)));
        let mut is_reaped = reap(false);
        if !is_reaped && self.keeper_ended {
            is_reaped = match adopt::open(self.keeper.pid) {
                Some(pidfd) => {
                    adopt::await_end(&pidfd, Instant::now() + LONGEST_LOST);
                    reap(false)
                }
                // The descriptor table is full.
                None => reap(true),
            };
        }
        if is_reaped {
            own.forget(self.keeper.pid);
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if !self.is_over {
            self.stop(StopPlan {
                signal: libc::SIGKILL,
                grace: Duration::ZERO,
            });
        }
        while !self.is_over {
            self.wait(Instant::now() + LONGEST_LOST);
            let _event = self.told();
        }
        if self.keeper.started.is_none() {
            self.reap_keeper();
        }
    }
}

/// Whether something can be read there now.
fn is_readable(fd: std::os::fd::BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
