//! A program that a scope started, in its own task: its descriptors are released as soon as its
//! last process is gone.

use std::time::Duration;

use fdguard_process::plan::Plan;
use fdguard_process::tree::{Exit, Options, StartError, StopPlan, Tree, TreeEvent};
use tokio::sync::{mpsc, watch};

use crate::Error;
use crate::watched_tree::{SharedTree, WatchedTree};

/// KILL, at once.
const AT_ONCE: StopPlan = StopPlan {
    signal: 9,
    grace: Duration::ZERO,
};

/// A program with all its descendants. Drop kills all of them.
#[derive(Debug)]
pub(crate) struct Program {
    pid: u32,
    keeper: u32,
    asks: mpsc::UnboundedSender<StopPlan>,
    told: watch::Receiver<State>,
}

/// What is known about it so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// How the program itself ended.
    pub(super) main: Option<Exit>,
    /// Nothing is left of it, or its keeper is lost.
    pub(super) over: Option<Over>,
}

/// The end of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Over {
    /// Proven: the keeper reaped the last one.
    Empty { killed: u32, reaped: u32 },
    /// Its keeper was killed or stopped. This many processes are still running, if known.
    Lost { left: Option<u32> },
}

impl Program {
    /// Starts it. Nothing is left if it fails or is cancelled.
    pub(crate) async fn start(plan: Plan) -> Result<Self, Error> {
        let started = tokio::task::spawn_blocking(move || start(&plan)).await;
        let tree = started.map_err(|error| Error::Bad(error.to_string()))??;
        let (pid, keeper) = (tree.main(), tree.keeper());
        let tree = WatchedTree::new(tree, &SharedTree::default())
            .map_err(Error::io("cannot wait for the program"))?;
        let (asks, asked) = mpsc::unbounded_channel();
        let (tell, told) = watch::channel(State::default());
        // Not awaited: it ends with the tree, and the tree ends when `asks` is dropped.
        drop(tokio::spawn(keep(tree, asked, tell)));
        Ok(Self {
            pid,
            keeper,
            asks,
            told,
        })
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The process above it: every process of the tree is below that, whatever it did.
    pub(super) fn keeper(&self) -> u32 {
        self.keeper
    }

    /// The current state.
    pub(super) fn state(&self) -> State {
        *self.told.borrow()
    }

    /// Asks the whole tree to end.
    pub(super) fn ask(&self, stop: StopPlan) {
        // Ignored if the tree has already ended.
        let _unheard = self.asks.send(stop);
    }

    /// Waits for the end of the program itself, kills what it left, and waits until nothing is
    /// left.
    pub(crate) async fn finish(&self) -> Option<Exit> {
        let mut told = self.told.clone();
        // An error means that the task is gone: `over` reports the same.
        let ended = told.wait_for(|state| state.main.is_some() || state.over.is_some());
        let _known = ended.await.is_ok();
        self.ask(AT_ONCE);
        self.over().await.0
    }

    /// Waits until it is over.
    pub(crate) async fn over(&self) -> (Option<Exit>, Over) {
        let mut told = self.told.clone();
        let state = told.wait_for(|state| state.over.is_some()).await;
        match state.as_deref() {
            Ok(State {
                main,
                over: Some(over),
            }) => (*main, *over),
            // The task ended without a result: the runtime ended, and dropping the tree killed it.
            _ => (None, Over::Lost { left: None }),
        }
    }
}

/// Costs one descriptor: the keeper reports the end of the program.
fn start(plan: &Plan) -> Result<Tree, StartError> {
    let options = Options {
        keep_pidfd: false,
        ..Options::default()
    };
    Tree::start_with(plan, options)
}

async fn keep(
    tree: WatchedTree,
    mut asked: mpsc::UnboundedReceiver<StopPlan>,
    tell: watch::Sender<State>,
) {
    let mut state = State::default();
    let mut has_owner = true;
    while state.over.is_none() {
        tokio::select! {
            ask = asked.recv(), if has_owner => {
                has_owner = ask.is_some();
                tree.stop(ask.unwrap_or(AT_ONCE));
            }
            told = tree.told() => match told {
                Ok(told) => state.hear(told, tree.orphans_left()),
                // The runtime's reactor is gone.
                Err(_) => state.over = Some(Over::Lost { left: None }),
            },
        }
        if state.over.is_none() {
            tell.send_replace(state);
        }
    }
    // The drop waits briefly for the keeper's own end. The end is reported only afterwards, when
    // nothing is left.
    tree.release().await;
    tell.send_replace(state);
}

impl State {
    fn hear(&mut self, told: TreeEvent, left: Option<u32>) {
        match told {
            TreeEvent::MainEnded { exit, .. } => self.main = Some(exit),
            TreeEvent::Empty {
                exit,
                killed,
                reaped,
            } => {
                self.main = Some(exit);
                self.over = Some(Over::Empty { killed, reaped });
            }
            TreeEvent::Lost => self.over = Some(Over::Lost { left }),
            _ => {}
        }
    }
}

/// An exit status as text.
pub(super) fn words(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
    }
}
