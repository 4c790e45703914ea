//! Follows a policy until the address is free or refused.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use fdguard_probe::{Error, Probe};
use fdguard_proc::ProcKey;
use fdguard_process::listen::ListenAddress;
use fdguard_process::run_id;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};

use super::class::OwnProcesses;
use super::conflict::{Conflict, find_conflict};
use super::policy::PortPolicy;
use crate::poll::Interest;

/// How often a held address is checked again.
const EVERY: Duration = Duration::from_millis(200);
/// After KILL a process is gone at once, unless the kernel keeps it.
const AFTER_KILL: Duration = Duration::from_secs(5);
/// How often to end what earlier runs left; if it comes back more often, something restarts it.
const MOST_ROUNDS: u32 = 3;

/// A policy in progress for one address.
#[derive(Debug)]
pub struct Clearing {
    at: ListenAddress,
    policy: PortPolicy,
    grace: Duration,
    state: State,
    rounds: u32,
    /// Failed binds after the address seemed to be free.
    missed: u32,
}

#[derive(Debug)]
enum State {
    /// Check at this moment; refuse from the other one on.
    Look { at: Instant, until: Option<Instant> },
    /// Wait for these to exit.
    Ending {
        left: Vec<Ending>,
        kill_at: Instant,
        killed: bool,
    },
}

/// A process that received a request to exit.
#[derive(Debug)]
struct Ending {
    pidfd: OwnedFd,
}

/// The progress.
#[derive(Debug)]
pub enum ClearingStep {
    /// The address is free: bind again.
    Free,
    /// Not yet. The conflict, if it changed.
    Pending(Option<Conflict>),
    /// It stays in use: report it and exit.
    Refused(Conflict),
}

impl Clearing {
    /// Starts after a failed bind. Stopped processes get this long from TERM to KILL.
    #[must_use]
    pub fn new(at: ListenAddress, policy: PortPolicy, grace: Duration, now: Instant) -> Self {
        let until = match policy {
            PortPolicy::Wait(length) => Some(now + length),
            PortPolicy::Refuse | PortPolicy::EndIfOurs => None,
        };
        Self {
            at,
            policy,
            grace,
            state: State::Look { at: now, until },
            rounds: 0,
            missed: 0,
        }
    }

    /// After another failed bind, although no holder was found: another process was faster, or the
    /// kernel does not list the holder (before 6.8 not a socket that is bound and does not listen).
    /// Looks again soon; the conflict if there is no time for that.
    pub fn look_again(&mut self, now: Instant) -> Option<Conflict> {
        self.missed += 1;
        let until = match self.state {
            State::Look { until, .. } => until,
            State::Ending { .. } => None,
        };
        let at = now + EVERY;
        self.state = State::Look { at, until };
        let may = until.map_or(self.missed <= MOST_ROUNDS, |until| at < until);
        (!may).then(|| Conflict::without_holder(&self.at))
    }

    /// Registers its descriptors and deadline.
    pub fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        match &self.state {
            State::Look { at, .. } => wants.until(*at),
            State::Ending { left, kill_at, .. } => {
                left.iter().for_each(|it| wants.read(it.pidfd.as_fd()));
                wants.until(*kill_at);
            }
        }
    }

    /// One more step; never blocks.
    pub fn poll(
        &mut self,
        now: Instant,
        probe: &Probe,
        ours: &OwnProcesses<'_>,
    ) -> Result<ClearingStep, Error> {
        match &mut self.state {
            State::Look { at, .. } if now < *at => Ok(ClearingStep::Pending(None)),
            State::Look { until, .. } => {
                let until = *until;
                self.find_conflict(now, until, probe, ours)
            }
            State::Ending {
                left,
                kill_at,
                killed,
            } => {
                left.retain(|it| !is_over(&it.pidfd));
                if !left.is_empty() && now < *kill_at {
                    return Ok(ClearingStep::Pending(None));
                }
                if !left.is_empty() && !*killed {
                    left.iter().for_each(|it| signal(&it.pidfd, Signal::KILL));
                    (*kill_at, *killed) = (now + AFTER_KILL, true);
                    return Ok(ClearingStep::Pending(None));
                }
                self.state = State::Look {
                    at: now,
                    until: None,
                };
                self.find_conflict(now, None, probe, ours)
            }
        }
    }

    fn find_conflict(
        &mut self,
        now: Instant,
        until: Option<Instant>,
        probe: &Probe,
        ours: &OwnProcesses<'_>,
    ) -> Result<ClearingStep, Error> {
        let Some(conflict) = find_conflict(probe, &self.at, ours)? else {
            return Ok(ClearingStep::Free);
        };
        match self.policy {
            PortPolicy::Wait(_) if until.is_some_and(|until| now < until) => {
                let first = self.rounds == 0;
                self.rounds = 1;
                let at = until.map_or(now + EVERY, |until| (now + EVERY).min(until));
                self.state = State::Look { at, until };
                Ok(ClearingStep::Pending(first.then_some(conflict)))
            }
            PortPolicy::EndIfOurs if self.rounds < MOST_ROUNDS && conflict.is_all_ours_before() => {
                self.rounds += 1;
                Ok(self.end(now, conflict, probe, ours))
            }
            _ => Ok(ClearingStep::Refused(conflict)),
        }
    }

    /// Requests the holders to exit. Each is pinned first and then checked again: only a process
    /// that is still the same, and still of that class, gets a signal.
    fn end(
        &mut self,
        now: Instant,
        conflict: Conflict,
        probe: &Probe,
        ours: &OwnProcesses<'_>,
    ) -> ClearingStep {
        let keys = conflict
            .holders
            .iter()
            .filter_map(super::AddressHolder::key);
        let left: Vec<Ending> = keys
            .filter_map(|key| pin(key, probe, ours))
            .map(|pidfd| Ending { pidfd })
            .collect();
        for ending in &left {
            signal(&ending.pidfd, Signal::TERM);
            // A stopped process handles it only after it continues.
            signal(&ending.pidfd, Signal::CONT);
        }
        self.state = State::Ending {
            left,
            kill_at: now + self.grace,
            killed: false,
        };
        ClearingStep::Pending(Some(conflict))
    }
}

/// Pins a process, if it is this one and an earlier run left it behind.
fn pin(key: ProcKey, probe: &Probe, ours: &OwnProcesses<'_>) -> Option<OwnedFd> {
    let pidfd = key.open_pidfd().ok()?;
    // Read while it is pinned and running: its pid was not reused.
    let who = probe.who_is(key.pid, run_id::VARIABLE).ok()?;
    let class = super::classify(&who, ours, run_id::RunId::is_running);
    let may_end = matches!(class, super::HolderClass::OursBefore { .. });
    (may_end && !is_over(&pidfd)).then_some(pidfd)
}

fn signal(pidfd: &OwnedFd, signal: Signal) {
    // A failure means that it has exited or that it may not be signalled; the next check shows
    // which.
    let _ = pidfd_send_signal(pidfd, signal);
}

fn is_over(pidfd: &OwnedFd) -> bool {
    let mut list = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut list, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}
