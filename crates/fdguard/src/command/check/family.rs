//! The processes that a program starts, and those that are left when it ends.
//!
//! During a check fdguard is a subreaper: a process that loses its parent becomes fdguard's child,
//! so none can escape by a second fork or its own session. Each check is a separate process, so
//! several at once do not see each other.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fdguard_core::Text;
use fdguard_core::glob::Glob;
use fdguard_core::proof::process::{Ending, Fate, LeftoverProcess};
use fdguard_proc::ProcKey;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, pidfd_send_signal, set_child_subreaper, waitpid};

use super::stat::{Stat, descendants};

/// How often to scan for descendants.
const EVERY: Duration = Duration::from_millis(200);
/// A child that has ended counts as a zombie after this long without a wait; every child is one
/// briefly.
const ZOMBIE: Duration = Duration::from_millis(500);
/// How long a process may take to end after SIGTERM, and after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(2);
/// Rounds of terminating and killing: a process may start another one before it ends.
const ROUNDS: usize = 3;
/// Marks the environment of an exercise: what it leaves behind does not belong to the server.
pub(super) const EXERCISE: &str = "FDGUARD_EXERCISE";

type KnownProcesses = BTreeMap<ProcKey, Member>;

/// What was seen of one descendant.
#[derive(Clone, Debug)]
struct Member {
    comm: Text,
    cmdline: Vec<Text>,
    parent: Option<(u32, Text)>,
    zombie_since: Option<Instant>,
}

/// The descendants of a program.
#[derive(Debug)]
pub(super) struct Family {
    known: Arc<Mutex<KnownProcesses>>,
    /// Children of fdguard from before: they do not belong to the program.
    before: Vec<ProcKey>,
    watcher: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Family {
    /// Becomes the parent of orphans. Called before the program is started.
    pub(super) fn start() -> anyhow::Result<Self> {
        let own = std::process::id();
        let all = Stat::all();
        let before = descendants(&all, own, &[]);
        set_child_subreaper(Pid::from_raw(1))?;
        Ok(Self {
            before: before.into_iter().map(|one| one.key).collect(),
            known: Arc::new(Mutex::new(KnownProcesses::new())),
            watcher: None,
        })
    }

    /// Starts to track the descendants of the program.
    pub(super) fn follow(&mut self, root: u32) -> anyhow::Result<()> {
        let (stop, stopped) = mpsc::channel();
        let known = Arc::clone(&self.known);
        let thread = std::thread::Builder::new().spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
                note(&known, root);
            }
        })?;
        self.watcher = Some((stop, thread));
        Ok(())
    }

    /// Returns the descendants that remain after the program has ended. They get `grace` to end by
    /// themselves; then they are terminated, unless `keep` is set.
    pub(super) fn left(
        &mut self,
        grace: Duration,
        keep: bool,
        allowed: &[Glob],
    ) -> Vec<LeftoverProcess> {
        let ended = Instant::now();
        self.stop();
        let mut left = self.zombies(ended);
        let survivors = self.wait_for_all(ended + grace);
        for survivor in &survivors {
            left.push(self.leftover(survivor, Fate::Running));
        }
        for one in &mut left {
            let name = one.comm.as_bytes();
            let allowance = allowed.iter().find(|glob| glob.matches(name));
            one.allowed_by = allowance.map(|glob| format!("--allow-process {}", glob.as_str()));
        }
        if keep {
            return left;
        }
        for _ in 0..ROUNDS {
            let alive = self.alive();
            if alive.is_empty() {
                break;
            }
            for one in &alive {
                let ending = end(one);
                let entry = left.iter_mut().find(|entry| entry.pid == one.pid);
                if let Some(entry) = entry {
                    entry.ending = ending;
                }
            }
        }
        left
    }

    fn stop(&mut self) {
        if let Some((stop, thread)) = self.watcher.take() {
            drop(stop);
            drop(thread.join());
        }
    }

    /// Children that ended well before the program did, and were never reaped.
    fn zombies(&self, ended: Instant) -> Vec<LeftoverProcess> {
        let all = Stat::all();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |since: &Instant| ended.saturating_duration_since(*since) >= ZOMBIE;
        let stale = known
            .iter()
            .filter(|(_, one)| one.zombie_since.as_ref().is_some_and(is_old));
        let keys: Vec<ProcKey> = stale.map(|(key, _)| *key).collect();
        drop(known);
        let there = all
            .iter()
            .filter(|one| keys.contains(&one.key) && one.is_zombie);
        there.map(|one| self.leftover(one, Fate::Zombie)).collect()
    }

    fn leftover(&self, stat: &Stat, fate: Fate) -> LeftoverProcess {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let member = known.get(&stat.key);
        let now = stat.cmdline();
        let cmdline = match member {
            Some(member) if now.is_empty() => member.cmdline.clone(),
            _ => now,
        };
        LeftoverProcess {
            pid: stat.pid,
            comm: stat.comm.clone(),
            cmdline,
            fate,
            own_session: (fate == Fate::Running).then_some(stat.session == Some(stat.pid)),
            parent: member.and_then(|member| member.parent.clone()),
            ending: if fate == Fate::Zombie {
                Ending::Ended
            } else {
                Ending::Kept
            },
            origin: None,
            allowed_by: None,
        }
    }

    /// The program's descendants that still run; reaps those that ended.
    fn alive(&self) -> Vec<Stat> {
        let all = Stat::all();
        let own = std::process::id();
        let mut alive = Vec::new();
        for one in descendants(&all, own, &self.before) {
            if one.is_zombie {
                reap(one);
            } else if !one.has_in_environment(EXERCISE, "1") {
                alive.push(one.clone());
            }
        }
        alive
    }

    /// Waits until all have ended or the deadline passes; returns those still alive.
    fn wait_for_all(&self, deadline: Instant) -> Vec<Stat> {
        loop {
            let alive = self.alive();
            let left = deadline.saturating_duration_since(Instant::now());
            if alive.is_empty() || left.is_zero() {
                return alive;
            }
            let handles: Vec<OwnedFd> = alive
                .iter()
                .filter_map(|one| one.key.open_pidfd().ok())
                .collect();
            // A process without a pidfd cannot be waited for and is polled instead.
            let most = if handles.len() == alive.len() {
                left
            } else {
                left.min(EVERY)
            };
            wait_for_any(&handles, most);
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.stop();
        // The calling process was not a subreaper before. A failure cannot be handled here.
        let _ = set_child_subreaper(None);
    }
}

/// Records the descendants, their parents, and when each became a zombie.
fn note(known: &Mutex<KnownProcesses>, root: u32) {
    let all = Stat::all();
    let own = std::process::id();
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let name = |pid: u32| all.iter().find(|one| one.pid == pid);
    let orphans = all
        .iter()
        .filter(|one| one.ppid == own && known.contains_key(&one.key));
    let orphans: Vec<&Stat> = orphans.collect();
    for one in descendants(&all, root, &[]) {
        let member = known.entry(one.key).or_insert_with(|| Member {
            comm: Text::default(),
            cmdline: Vec::new(),
            parent: name(one.ppid).map(|parent| (parent.pid, parent.comm.clone())),
            zombie_since: None,
        });
        if one.is_zombie {
            member.zombie_since.get_or_insert_with(Instant::now);
        } else {
            // It may have executed another program since.
            member.cmdline = one.cmdline();
            member.comm.clone_from(&one.comm);
        }
    }
    // Ended orphans were reparented to fdguard, so no other process waits for them. They certainly
    // belong to the program.
    for one in orphans.into_iter().filter(|one| one.is_zombie) {
        // Do not reap a zombie inherited from its parent before it is reported.
        let was_zombie = known
            .get(&one.key)
            .is_some_and(|member| member.zombie_since.is_some());
        if !was_zombie {
            reap(one);
        }
    }
}

/// Reaps an ended child of fdguard.
fn reap(stat: &Stat) {
    if stat.ppid == std::process::id() {
        // Another waiter may have been faster; the child is gone either way.
        let _ = waitpid(pid(stat.pid), WaitOptions::NOHANG);
    }
}

fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

/// Waits until any of them ends; returns whether one did.
fn wait_for_any(handles: &[OwnedFd], most: Duration) -> bool {
    let mut fds: Vec<PollFd<'_>> = handles
        .iter()
        .map(|handle| PollFd::new(handle, PollFlags::IN))
        .collect();
    let timeout = Timespec::try_from(most).unwrap_or_default();
    poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
}

/// Ends one process: SIGTERM, wait, SIGKILL.
fn end(stat: &Stat) -> Ending {
    let Ok(handle) = stat.key.open_pidfd() else {
        return Ending::Ended;
    };
    let handles = [handle];
    for (signal, ending) in [
        (Signal::TERM, Ending::Asked),
        (Signal::KILL, Ending::Killed),
    ] {
        if pidfd_send_signal(&handles[0], signal).is_err() {
            continue;
        }
        if wait_for_any(&handles, PATIENCE) {
            if let Some(now) = Stat::read(stat.pid).filter(|now| now.is_zombie) {
                reap(&now);
            }
            return ending;
        }
    }
    Ending::Failed
}
