//! The process tree of a session, watched on the runtime.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fdguard_process::tree::{Exit, StopPlan, Tree, TreeEvent};

use super::fd_count::{FdCount, Token};
use crate::Error;
use crate::watched_tree::Control;

/// Shared access to a session's tree while it runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    tree: Arc<Mutex<Option<(Tree, Token)>>>,
    is_starved: Arc<AtomicBool>,
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, Option<(Tree, Token)>> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the kernel killed the last program because its memory was exhausted.
    pub(super) fn is_starved(&self) -> bool {
        self.is_starved.load(Ordering::Relaxed)
    }

    /// Asks the tree, if there is one.
    pub(super) fn with<T>(&self, ask: impl FnOnce(&mut Tree) -> T) -> Option<T> {
        self.lock().as_mut().map(|(tree, _)| ask(tree))
    }
}

/// What the keeper has reported, and its next report.
#[derive(Debug)]
pub(super) struct Keeper {
    /// Before the tree: a watched descriptor must stay open until it is deregistered.
    control: Option<Control>,
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
        let control = Control::of(&tree).map_err(Error::io("cannot watch the session's keeper"))?;
        *place.lock() = Some((tree, token));
        place.is_starved.store(false, Ordering::Relaxed);
        Ok(Self {
            control: Some(control),
            place: place.clone(),
            exit: None,
            over: None,
        })
    }

    /// The next report; waits forever if there is none to come.
    pub(super) async fn told(&mut self) -> TreeEvent {
        loop {
            let Some(control) = self.control.as_ref().filter(|_| self.over.is_none()) else {
                return std::future::pending().await;
            };
            let look = self.place.with(|tree| tree.deadline()).flatten();
            let told = control.hear(look, || self.place.with(Tree::told).flatten());
            match told.await {
                Ok(Some(told)) => return self.note(told),
                Ok(None) => {}
                // The runtime ends, and this task with it.
                Err(_) => return std::future::pending().await,
            }
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

    /// How many of its processes live.
    pub(super) fn members(&self) -> Option<u32> {
        let members = self.place.with(|tree| tree.members().len());
        members.and_then(|members| u32::try_from(members).ok())
    }

    pub(super) fn stop(&self, how: StopPlan) {
        self.place.with(|tree| tree.stop(how));
    }

    /// After the keeper was lost: how many of its processes live on, if that is known.
    pub(super) fn orphans_left(&self) -> Option<u32> {
        self.place.with(|tree| tree.orphans_left()).flatten()
    }

    /// Sends a signal to all members, optionally except the program.
    pub(super) fn signal_all(&self, signal: i32, except_main: bool) {
        self.place.with(|tree| tree.signal_all(signal, except_main));
    }

    /// Lets go of the tree. The drop may wait for the keeper's last moment, so it is done where
    /// waiting is allowed.
    pub(super) async fn release(mut self) {
        self.control = None;
        let tree = self.place.lock().take();
        // Fails only when the runtime ends; then the tree is dropped, too.
        let _ended = tokio::task::spawn_blocking(move || drop(tree)).await;
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.control = None;
        drop(self.place.lock().take());
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
