//! The process tree of a session, watched on the runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fdguard_process::tree::{Exit, StopPlan, Tree, TreeEvent};

use super::fd_count::{FdCount, Token};
use crate::Error;
use crate::watched_tree::{SharedTree, WatchedTree};

/// Shared access to a session's tree while it runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    tree: SharedTree,
    is_starved: Arc<AtomicBool>,
}

impl Place {
    /// Whether the kernel killed the last program because its memory was exhausted.
    pub(super) fn is_starved(&self) -> bool {
        self.is_starved.load(Ordering::Relaxed)
    }

    /// Asks the tree, if there is one.
    pub(super) fn with<T>(&self, ask: impl FnOnce(&mut Tree) -> T) -> Option<T> {
        self.tree.with(ask)
    }
}

/// What the keeper has reported, and its next report.
#[derive(Debug)]
pub(super) struct Keeper {
    tree: WatchedTree,
    token: Token,
    place: Place,
    /// How the program ended.
    pub(super) exit: Option<Exit>,
    /// How the whole tree ended.
    pub(super) over: Option<TreeEvent>,
}

impl Keeper {
    /// Watches a tree and publishes it for queries.
    pub(super) fn watch(tree: Tree, place: &Place, held: &FdCount) -> Result<Self, Error> {
        let token = held.token();
        let tree = WatchedTree::new(tree, &place.tree);
        let tree = tree.map_err(Error::io("cannot watch the session's keeper"))?;
        place.is_starved.store(false, Ordering::Relaxed);
        Ok(Self {
            tree,
            token,
            place: place.clone(),
            exit: None,
            over: None,
        })
    }

    /// The next report; waits forever if there is none to come.
    pub(super) async fn told(&mut self) -> TreeEvent {
        match self.tree.told().await {
            Ok(told) => self.note(told),
            // The runtime ends, and this task with it.
            Err(_) => std::future::pending().await,
        }
    }

    fn note(&mut self, told: TreeEvent) -> TreeEvent {
        match told {
            TreeEvent::MainEnded { exit, .. } => {
                self.exit = Some(exit);
                let usage = self.place.with(|tree| tree.usage()).flatten();
                let kills = usage.and_then(|usage| usage.memory_kills);
                let is_starved = kills.is_some_and(|kills| kills > 0);
                self.place.is_starved.store(is_starved, Ordering::Relaxed);
            }
            TreeEvent::Empty { exit, .. } => {
                self.exit = Some(exit);
                self.over = Some(told);
            }
            _ => self.over = Some(told),
        }
        told
    }

    /// The program's process.
    pub(super) fn main(&self) -> Option<u32> {
        self.place.with(|tree| tree.main())
    }

    pub(super) fn stop(&self, how: StopPlan) {
        self.tree.stop(how);
    }

    /// After the keeper was lost: how many of its processes live on, if that is known.
    pub(super) fn orphans_left(&self) -> Option<u32> {
        self.tree.orphans_left()
    }

    /// Sends a signal to all members, optionally except the program.
    pub(super) fn signal_all(&self, signal: i32, except_main: bool) {
        self.place.with(|tree| tree.signal_all(signal, except_main));
    }

    /// Lets go of the tree, and then of its count.
    pub(super) async fn release(self) {
        self.tree.release().await;
        drop(self.token);
    }
}

/// As a shell shows it.
pub(super) fn status(exit: Exit) -> i32 {
    match exit {
        Exit::Code(code) => i32::from(code),
        Exit::Signal(signal) => 128 + signal,
    }
}

/// In words.
pub(super) fn words(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
    }
}
