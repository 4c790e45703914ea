//! The owner's end of a process tree.

mod hear;
mod offer;
mod start;
mod types;

use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, send};

use hear::{Heard, receive};
pub use offer::{Attach, Offer};
use start::Started;
pub use types::{Exit, Mechanism, Options, StartError, Stop, Told, Usage};

use crate::adopt;
use crate::identity::{Identity, signal_checked};
pub use crate::keeper::keep_here;
use crate::keeper::message::{FromKeeper, ToKeeper};
pub use crate::limits::{By, Enforced};
use crate::lost;
pub use crate::lost::Strays;
use crate::members::{self, Member};
use crate::plan::Plan;
use crate::reserve;
use crate::sys;

/// The longest that the drop of a tree waits. Only a process that the kernel cannot end (it waits for a device) takes that long;
/// the keeper stays with it until it is gone.
const LONGEST_DROP: Duration = Duration::from_secs(5);

/// A killed keeper closes its end a moment before it has ended.
const LONGEST_LOST: Duration = Duration::from_secs(1);

/// A tree of processes with its keeper. Dropped, it is killed, and the drop waits for its end, five seconds at most.
#[derive(Debug)]
pub struct Tree {
    main: u32,
    /// The program's start, in ticks since the boot: with its number it never means another process.
    main_started: u64,
    pidfd: Option<OwnedFd>,
    keeper: Keeper,
    control: OwnedFd,
    mechanism: Mechanism,
    enforced: Enforced,
    leaf: Option<CString>,
    /// `Empty` or `Lost` was told.
    is_over: bool,
    /// What the keeper said last. It is told when the keeper itself has ended.
    empty: Option<Told>,
    /// The keeper's end of the pair is closed: it ended.
    keeper_ended: bool,
    usage: Option<Usage>,
    /// Who was seen last, for the case that the keeper is killed.
    seen: Mutex<Vec<Member>>,
    /// Processes that outlived a killed keeper and could not be ended, where that is known.
    orphans_left: Option<u32>,
}

/// Who keeps a tree.
#[derive(Clone, Copy, Debug)]
struct Keeper {
    pid: u32,
    /// Its start, where it is not our own child: then its number may be another's when it has ended.
    started: Option<u64>,
}

impl Keeper {
    /// Whether its number means it still.
    fn is_there(self) -> bool {
        self.started.is_none_or(|started| {
            Identity::known(self.pid, started).is_some_and(|keeper| keeper.matches())
        })
    }
}

impl Tree {
    fn of(keeper: Keeper, control: OwnedFd, started: Started, leaf: Option<CString>) -> Self {
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
            is_over: false,
            empty: None,
            keeper_ended: false,
            usage: None,
            seen: Mutex::default(),
            orphans_left: None,
        }
    }

    /// Starts the program and waits until it runs or cannot (a few hundred microseconds).
    pub fn start(plan: &Plan) -> Result<Self, StartError> {
        Self::start_with(plan, Options::default())
    }

    /// The same, with choices.
    pub fn start_with(plan: &Plan, options: Options<'_>) -> Result<Self, StartError> {
        let begin = || start::begin(plan, options.orphan_grace, options.keep_pidfd);
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

    /// A descriptor of the program's process; readable when it has ended. Absent where the start was asked to do without.
    #[must_use]
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(OwnedFd::as_fd)
    }

    /// The keeper's process: ours, not one of the tree.
    #[must_use]
    pub fn keeper(&self) -> u32 {
        self.keeper.pid
    }

    /// What holds it together.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Who sees to the plan's limits.
    #[must_use]
    pub fn enforced(&self) -> Enforced {
        self.enforced
    }

    /// What the program itself used; known since `MainEnded` was told.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Its processes that live at this moment, the program first.
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

    /// Whether `Empty` or `Lost` was told: nothing of it is left to wait for, and a drop only reaps.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Readable when something was told. Stays so after `Empty` and `Lost`: nothing follows them, drop the tree.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// What was told since; never waits. `MainEnded` comes once, then `Empty`; or `Lost` instead of what is missing.
    pub fn told(&mut self) -> Option<Told> {
        if self.is_over {
            return None;
        }
        loop {
            match receive(&self.control, RecvFlags::DONTWAIT) {
                Ok(Heard::Said(said, _)) => {
                    if let Some(told) = self.hear(said) {
                        return Some(told);
                    }
                }
                Ok(Heard::End) => {
                    self.is_over = true;
                    self.keeper_ended = true;
                    if self.empty.is_none() {
                        self.lost();
                    }
                    return Some(self.empty.unwrap_or(Told::Lost));
                }
                Err(_nothing_yet) => return None,
            }
        }
    }

    /// What of it can be told at once. The end of the tree is told with the end of its keeper, so that nobody waits for that later.
    fn hear(&mut self, said: FromKeeper) -> Option<Told> {
        match said {
            FromKeeper::MainEnded { exit, left, usage } => {
                self.usage = Some(usage);
                Some(Told::MainEnded { exit, left })
            }
            FromKeeper::Empty {
                exit,
                killed,
                reaped,
            } => {
                self.empty = Some(Told::Empty {
                    exit,
                    killed,
                    reaped,
                });
                None
            }
            FromKeeper::Started { .. } | FromKeeper::Failed { .. } => None,
        }
    }

    /// Asks it to end. Another call with a shorter grace hurries it; no grace is KILL at once.
    pub fn stop(&self, how: Stop) {
        self.say(ToKeeper::Stop(how));
        self.wake();
    }

    /// Lets a keeper go on that one of its own processes has stopped: it cannot defend itself against that.
    pub fn wake(&self) {
        if self.keeper_ended {
            return;
        }
        let _gone = match self.keeper.started {
            // Our own child, which nobody but us reaps.
            None => sys::signal_child(self.keeper.pid, libc::SIGCONT).is_ok(),
            Some(started) => Identity::known(self.keeper.pid, started)
                .is_some_and(|keeper| signal_checked(&keeper, libc::SIGCONT).is_ok()),
        };
    }

    /// Who ends the orphans of trees that are kept below this one's program and lost their keepers.
    #[must_use]
    pub fn strays(&self) -> Strays {
        Strays {
            keeper: self.keeper.pid,
            main: Member {
                pid: self.main,
                started: self.main_started,
            },
        }
    }

    /// After `Lost`: how many of its processes live on. Absent where nobody can say, because this process does not adopt orphans
    /// ([`adopt_orphans_of_trees`](crate::adopt::adopt_orphans_of_trees)) or the keeper was not its child.
    #[must_use]
    pub fn orphans_left(&self) -> Option<u32> {
        self.orphans_left
    }

    /// Sends a signal to the program alone, if it lives.
    pub fn signal(&self, signal: i32) {
        match &self.pidfd {
            Some(pidfd) => {
                let _gone = sys::signal_pidfd(pidfd, signal);
            }
            // The keeper alone reaps it, and so knows whom the number means.
            None => self.say(ToKeeper::Signal(signal)),
        }
    }

    /// Sends a signal to every living member, the program left out where `except_main` says so. Whoever is born meanwhile may not get it.
    pub fn signal_all(&self, signal: i32, except_main: bool) {
        self.say(ToKeeper::SignalAll {
            signal,
            except_main,
        });
    }

    fn say(&self, to_keeper: ToKeeper) {
        // A keeper that does not hear it is gone, and `told` says so.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _unheard = send(&self.control, &to_keeper.encode(), flags);
    }

    /// Ends what is known of a tree whose keeper was killed.
    fn lost(&mut self) {
        let seen = std::mem::take(self.seen.get_mut().unwrap_or_else(PoisonError::into_inner));
        let main = Member {
            pid: self.main,
            started: self.main_started,
        };
        lost::end(main, &seen, self.leaf.as_deref());
        if self.keeper.started.is_none() {
            self.orphans_left = adopt::end_orphans_of(self.keeper.pid);
        } else if let Some(pidfd) = adopt::open(self.keeper.pid).filter(|_| self.keeper.is_there())
        {
            // Its orphans are another's when it has ended, and not before.
            adopt::await_end(&pidfd, Instant::now() + LONGEST_LOST);
        }
    }

    /// Waits for the keeper's end of the pair to be closed.
    fn await_keeper(&mut self, longest: Duration) {
        let deadline = Instant::now() + longest;
        while !self.keeper_ended {
            match receive(&self.control, RecvFlags::DONTWAIT) {
                Ok(Heard::Said(said, _)) => drop(self.hear(said)),
                Ok(Heard::End) => self.keeper_ended = true,
                Err(Errno::AGAIN | Errno::INTR) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let mut fds = [PollFd::from_borrowed_fd(
                        self.control.as_fd(),
                        PollFlags::IN,
                    )];
                    let timeout = Timespec::try_from(left).unwrap_or_default();
                    let ready = poll(&mut fds, Some(&timeout));
                    if ready == Ok(0) || left.is_zero() {
                        return;
                    }
                }
                Err(_) => self.keeper_ended = true,
            }
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if !self.is_over {
            self.stop(Stop {
                signal: libc::SIGKILL,
                grace: Duration::ZERO,
            });
        }
        self.await_keeper(LONGEST_DROP);
        if self.keeper_ended && !self.is_over && self.empty.is_none() {
            self.lost();
        }
        // It closed its end as the last thing before it ended. Otherwise it lives on until its tree is gone, and knows that we are.
        if self.keeper.started.is_none() {
            let mut own = adopt::own();
            if let Ok(Some(_)) = sys::reap(Some(self.keeper.pid), self.keeper_ended) {
                own.forget(self.keeper.pid);
            }
        }
    }
}
