//! Ends a program and proves it.

use std::time::Duration;

use fdguard_process::tree::{StopPlan, TreeEvent};
use tokio::time::Instant;

use super::keeper::words;
use super::running::{ROOM, Running};
use crate::receipt::{Receipt, SessionEndReason, StepTime};

/// HUP is what a closing terminal sends: an idle bash, which ignores TERM, runs its EXIT trap and
/// exits within a millisecond, and the Python driver unwinds. A program that is busy or ignores it
/// has this long.
pub(super) const GENTLY: StopPlan = StopPlan {
    signal: 1,
    grace: Duration::from_millis(200),
};

/// KILL.
pub(super) const AT_ONCE: StopPlan = StopPlan {
    signal: 9,
    grace: Duration::ZERO,
};

/// How long to read what is left in the terminal.
const LONGEST_DRAIN: Duration = Duration::from_millis(50);

/// What is known of an end; the session adds the rest of the receipt.
#[derive(Debug, Default)]
pub(super) struct SessionEnd {
    over: Option<TreeEvent>,
    survivors: Option<u32>,
    held: u32,
    left: u32,
    dropped: u64,
    steps: Vec<StepTime>,
    errors: Vec<String>,
}

/// Ends the tree first, then reads the remaining output, then closes: a survivor may hold the
/// terminal, so end of file is not awaited.
pub(super) async fn end(mut running: Running, how: StopPlan) -> SessionEnd {
    let mut clock = Clock::new();
    let mut ended = SessionEnd {
        held: running.descriptors,
        ..SessionEnd::default()
    };
    running.stop(how);
    let mut is_asked = running.keeper.exit.is_some();
    // A tree ends in bounded time, whatever its processes do to its keeper.
    while running.keeper.over.is_none() {
        running.keeper.told().await;
        if !is_asked {
            clock.step("ask");
            is_asked = true;
        }
    }
    clock.step("kill");
    ended.over = running.keeper.over;
    if matches!(ended.over, Some(TreeEvent::Lost)) {
        ended.survivors = running.keeper.orphans_left();
    }
    ended.dropped = drain(&mut running);
    clock.step("drain");
    let Running {
        streams,
        keeper,
        held,
        ..
    } = running;
    drop(streams);
    keeper.release().await;
    ended.left = held.count();
    clock.step("release");
    ended.steps = clock.steps;
    ended
}

fn drain(running: &mut Running) -> u64 {
    let deadline = Instant::now() + LONGEST_DRAIN;
    let mut room = vec![0; ROOM];
    let mut bytes = 0;
    while let Some((_, length)) = running.streams.read_now(&mut room) {
        bytes += length as u64;
        if Instant::now() > deadline {
            break;
        }
    }
    bytes
}

impl SessionEnd {
    /// Whether its keeper was killed and it is unknown what is left.
    pub(super) fn is_unsure(&self) -> bool {
        matches!(self.over, Some(TreeEvent::Lost)) && self.survivors.is_none()
    }

    /// Sets the number of survivors.
    pub(super) fn finish(&mut self, survivors: Option<u32>) {
        self.survivors = survivors;
    }

    /// The receipt of a session. `unheard` is output that was read but not delivered.
    pub(super) fn receipt(self, session: &str, reason: SessionEndReason, unheard: u64) -> Receipt {
        let mut errors = self.errors;
        let (survivors, exit, killed, reaped) = match self.over {
            Some(TreeEvent::Empty {
                exit,
                killed,
                reaped,
            }) => (Some(0), Some(words(exit)), Some(killed), Some(reaped)),
            Some(_) => {
                errors.push(match self.survivors {
                    Some(0) => {
                        "the keeper was killed or stopped: the host killed its processes".to_owned()
                    }
                    Some(left) => format!("{left} of its processes could not be killed"),
                    None => "the keeper was killed: the number of remaining processes is unknown"
                        .to_owned(),
                });
                (self.survivors, None, None, None)
            }
            None => (self.survivors, None, None, None),
        };
        // The keeper reports the end only when it has no child left to reap, zombies included.
        let zombies = survivors.filter(|survivors| *survivors == 0);
        Receipt {
            session: session.to_owned(),
            reason,
            clean: survivors == Some(0) && self.left == 0,
            survivors,
            zombies,
            reaped,
            killed,
            descriptors_held: self.held,
            descriptors_left: self.left,
            exit,
            dropped_bytes: self.dropped + unheard,
            total_ms: self.steps.iter().map(|step| step.ms).sum(),
            steps: self.steps,
            overuse: None,
            errors,
        }
    }
}

/// The end of a session whose program could not be restarted.
pub(super) fn nothing() -> SessionEnd {
    SessionEnd {
        survivors: Some(0),
        ..SessionEnd::default()
    }
}

/// The receipt if the session's task was lost: everything is unknown.
pub(super) fn unknown(session: &str, reason: SessionEndReason) -> Receipt {
    let mut receipt = SessionEnd::default().receipt(session, reason, 0);
    receipt.clean = false;
    receipt
        .errors
        .push("the session's task panicked or was cancelled".to_owned());
    receipt
}

/// Times of steps.
struct Clock {
    since: Instant,
    steps: Vec<StepTime>,
}

impl Clock {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            steps: Vec::new(),
        }
    }

    fn step(&mut self, name: &str) {
        let now = Instant::now();
        let took = now - self.since;
        self.since = now;
        self.steps.push(StepTime {
            step: name.to_owned(),
            ms: took.as_secs_f64() * 1000.0,
        });
    }
}
