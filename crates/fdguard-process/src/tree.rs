//! The owner's end of a process tree.

mod end;
mod keeper_process;
mod offer;
mod oversight;
mod receive;
mod start;
mod types;

use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use fdguard_proc::ProcKey;
use rustix::net::{RecvFlags, SendFlags, send};

pub(crate) use keeper_process::KeeperProcess;
pub use offer::{Attach, Offer};
use oversight::Oversight;
use receive::{KeeperMessage, receive};
use start::StartedProgram;
pub use types::{Exit, Mechanism, Options, StartError, StopPlan, TreeEvent, TreeInterest, Usage};

pub use crate::keeper::keep_here;
use crate::keeper::message::{FromKeeper, ToKeeper};
pub use crate::limits::{EnforcedLimits, LimitMechanism};
use crate::members;
use crate::plan::Plan;
use crate::reserve;
pub use crate::strays::Strays;
use crate::sys;

/// A tree of processes with its keeper. Dropping it kills the tree and waits for its end, seven
/// seconds at most.
///
/// A keeper may be stopped or traced by the processes it keeps, and then reports nothing. The tree
/// deals with that whenever it is asked for events: the owner waits for [`Tree::interest`], and then
/// calls [`Tree::told`]. An end that was requested comes at most seven seconds after KILL was due.
#[derive(Debug)]
pub struct Tree {
    main: u32,
    /// The program's start in ticks since boot: together with its pid it never means another
    /// process.
    main_started: u64,
    pidfd: Option<OwnedFd>,
    keeper: KeeperProcess,
    control: OwnedFd,
    mechanism: Mechanism,
    enforced: EnforcedLimits,
    leaf: Option<CString>,
    /// The mark that its processes carry in their environment; `None` if another process forked the
    /// program.
    mark: Option<String>,
    /// `Empty` or `Lost` was reported.
    is_over: bool,
    /// The keeper's last message, reported once the keeper itself has ended.
    empty: Option<TreeEvent>,
    /// The keeper's end of the pair is closed: it has ended.
    keeper_ended: bool,
    usage: Option<Usage>,
    /// When the owner checks the keeper.
    oversight: Box<Oversight>,
    /// The keeper reported the end of the program.
    main_reported: bool,
    /// The members seen last, in case the keeper is killed.
    seen: Mutex<Vec<ProcKey>>,
    /// Processes that outlived a killed keeper and could not be ended, if known.
    orphans_left: Option<u32>,
}

impl Tree {
    fn new(
        keeper: KeeperProcess,
        control: OwnedFd,
        started: StartedProgram,
        leaf: Option<CString>,
        mark: Option<String>,
    ) -> Self {
        let mut oversight = Box::<Oversight>::default();
        oversight.started(Instant::now(), started.pidfd.is_some());
        Self {
            main: started.main,
            main_started: started.at,
            pidfd: started.pidfd.map(reserve::raise),
            keeper,
            control: reserve::raise(control),
            mechanism: if started.in_cgroup {
                Mechanism::KeeperAndCgroup
            } else {
                Mechanism::Keeper
            },
            enforced: started.enforced,
            leaf: leaf.filter(|_| started.in_cgroup),
            mark,
            is_over: false,
            empty: None,
            keeper_ended: false,
            usage: None,
            oversight,
            main_reported: false,
            seen: Mutex::default(),
            orphans_left: None,
        }
    }

    /// Starts the program and waits until it runs or has failed (a few hundred microseconds).
    pub fn start(plan: &Plan) -> Result<Self, StartError> {
        Self::start_with(plan, Options::default())
    }

    /// The same, with options.
    pub fn start_with(plan: &Plan, options: Options<'_>) -> Result<Self, StartError> {
        let begin = || start::start(plan, options.orphan_grace, options.keep_pidfd);
        match options.reserve {
            Some(reserve) => reserve.lend(begin),
            None => begin(),
        }
    }

    /// The program's own process.
    #[must_use]
    pub fn main(&self) -> u32 {
        self.main
    }

    /// A pidfd of the program; readable when it has ended. `None` if the options disable it.
    #[must_use]
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(OwnedFd::as_fd)
    }

    /// What the owner waits for before it calls [`Tree::told`]; [`Tree::wait`] does that.
    #[must_use]
    pub fn interest(&self) -> TreeInterest<'_> {
        TreeInterest {
            fds: [Some(self.fd()), self.program_end()],
            until: self.deadline(),
        }
    }

    /// Readable when the program has ended and its keeper has not reported it yet: the keeper may
    /// be stopped. `None` if the options disable the pidfd, and once the end is known.
    fn program_end(&self) -> Option<BorrowedFd<'_>> {
        let is_news = !self.is_over && !self.main_reported && !self.oversight.knows_main_ended();
        self.pidfd().filter(|_| is_news)
    }

    /// When to call [`Tree::told`] even though nothing is readable; `None` if only an event
    /// matters. For owners that register [`Tree::fd`] once, of trees without a pidfd.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.oversight.next_look().filter(|_| !self.is_over)
    }

    /// The keeper's process, which is not part of the tree.
    #[must_use]
    pub fn keeper(&self) -> u32 {
        self.keeper.pid
    }

    /// What holds it together.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// How the plan's limits are enforced.
    #[must_use]
    pub fn enforced(&self) -> EnforcedLimits {
        self.enforced
    }

    /// Resources that the program used; known after `MainEnded`.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Its processes that are alive now, the program first.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        if self.is_over {
            return Vec::new();
        }
        let mut members = members::below(self.keeper.pid);
        if !self.keeper.is_there() {
            members.clear();
        }
        // `sort_by_key` keeps the order of the others.
        members.sort_by_key(|member| member.pid != self.main);
        let pids = members.iter().map(|member| member.pid).collect();
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = members;
        pids
    }

    /// Whether `Empty` or `Lost` was reported: there is nothing left to wait for, and a drop only
    /// reaps.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Readable when there are events. Stays readable after `Empty` and `Lost`: drop the tree then.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Events since the last call; never blocks. `MainEnded` comes once, then `Empty`; or `Lost`
    /// instead of the rest.
    pub fn told(&mut self) -> Option<TreeEvent> {
        while !self.is_over {
            match receive(&self.control, RecvFlags::DONTWAIT) {
                Ok(KeeperMessage::Message(said, _)) => {
                    if let Some(told) = self.hear(said) {
                        return Some(told);
                    }
                }
                Ok(KeeperMessage::End) => {
                    self.is_over = true;
                    self.keeper_ended = true;
                    if self.empty.is_none() {
                        self.lost();
                    }
                    return Some(self.empty.unwrap_or(TreeEvent::Lost));
                }
                Err(_nothing_yet) => return self.check_keeper(Instant::now()),
            }
        }
        None
    }

    fn program(&self) -> ProcKey {
        ProcKey {
            pid: self.main,
            start_ticks: self.main_started,
        }
    }

    /// The event to report at once, if any. The end of the tree is reported with the end of its
    /// keeper, so that no later wait for the keeper is needed.
    fn hear(&mut self, said: FromKeeper) -> Option<TreeEvent> {
        match said {
            FromKeeper::MainEnded { exit, left, usage } => {
                self.usage = Some(usage);
                self.main_reported = true;
                self.oversight.main_reported(Instant::now());
                Some(TreeEvent::MainEnded { exit, left })
            }
            FromKeeper::Empty {
                exit,
                killed,
                reaped,
            } => {
                // The keeper may have reaped what the owner killed before it received the request
                // to kill.
                let swept = self.oversight.killed();
                self.empty = Some(TreeEvent::Empty {
                    exit,
                    killed: killed.max(swept),
                    reaped,
                });
                None
            }
            FromKeeper::Started { .. } | FromKeeper::Failed { .. } => None,
        }
    }

    /// Ends orphans of trees that are kept below this tree's program and lost their keepers.
    #[must_use]
    pub fn strays(&self) -> Strays {
        Strays {
            keeper: self.keeper.pid,
            main: self.program(),
        }
    }

    /// After `Lost`: how many of its processes are still alive. `None` if unknown, because another
    /// process killed the keeper and this process does not adopt orphans
    /// ([`adopt_orphans_of_trees`](crate::adopt::adopt_orphans_of_trees)), or the keeper was not
    /// its child.
    #[must_use]
    pub fn orphans_left(&self) -> Option<u32> {
        self.orphans_left
    }

    /// Sends a signal to the program alone, if it is alive.
    pub fn signal(&mut self, signal: i32) {
        match &self.pidfd {
            Some(pidfd) => {
                let _gone = sys::signal_pidfd(pidfd, signal);
            }
            // Only the keeper reaps it, and so knows which process the pid means.
            None => self.say(ToKeeper::Signal(signal)),
        }
    }

    /// Sends a signal to every living member, without the program if `except_main` is set.
    /// Processes created meanwhile may not get it.
    pub fn signal_all(&mut self, signal: i32, except_main: bool) {
        self.say(ToKeeper::SignalAll {
            signal,
            except_main,
        });
    }

    fn say(&mut self, to_keeper: ToKeeper) {
        // A keeper that does not receive it is gone, which `told` reports.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _unheard = send(&self.control, &to_keeper.encode(), flags);
        // It may be stopped, and stopped again before it reads that.
        self.wake();
        self.oversight.hurry(Instant::now());
    }
}
