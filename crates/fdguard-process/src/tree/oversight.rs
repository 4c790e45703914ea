//! When the owner supervises a keeper. A keeper that is stopped or traced reports nothing and ends
//! nothing: it is continued, then its tree is ended from outside, and finally the keeper itself.
//! Pure.

use std::time::{Duration, Instant};

use fdguard_proc::ProcKey;

/// The interval between checks while something is expected.
const LOOK: Duration = Duration::from_millis(100);
/// The interval between checks of a keeper if no descriptor tells the owner that the program ended.
const IDLE_LOOK: Duration = Duration::from_secs(2);
/// From the time of KILL to the first sweep by the owner. A running keeper needs milliseconds.
const MARGIN: Duration = Duration::from_millis(500);
/// A keeper that is stopped for this long, with something to report, will not report it.
const HELD: Duration = Duration::from_millis(500);
/// A running keeper gets this long on the busiest machine, and so does a process that the kernel
/// cannot end.
const LONGEST: Duration = Duration::from_secs(5);

/// What an owner does at a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// All is well, or nothing helps yet.
    Wait,
    /// Continue the keeper.
    Wake,
    /// Kill everything below the keeper, and continue it.
    Sweep,
    /// Nothing is left below the keeper, and it does not report that: end it.
    KillKeeper,
    /// Stop waiting.
    GiveUp,
}

/// What an owner knows about a keeper that has not reported the end.
#[derive(Debug, Default)]
pub(super) struct Oversight {
    /// The end was requested.
    is_asked: bool,
    /// No descriptor of the owner is readable when something ends behind a stopped keeper.
    is_polled: bool,
    /// From then on everything should be dead.
    kill_at: Option<Instant>,
    /// Since when the program is known to have ended without a report from its keeper.
    main_gone: Option<Instant>,
    /// Since when nothing is alive below the keeper.
    empty_since: Option<Instant>,
    keeper_killed: Option<Instant>,
    next: Option<Instant>,
    /// Processes found below the keeper by sweeps, and killed.
    killed: Vec<ProcKey>,
}

impl Oversight {
    /// The next check; `None` if only an event can trigger one.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.next
    }

    /// A tree has started. With a pidfd of the program its end is an event; without one it is
    /// polled.
    pub(super) fn started(&mut self, now: Instant, has_pidfd: bool) {
        self.is_polled = !has_pidfd;
        self.next = self.next_idle(now);
    }

    /// The end was requested, with KILL after this grace. A second request can only speed it up.
    pub(super) fn asked(&mut self, now: Instant, grace: Duration) {
        let wanted = now.checked_add(grace);
        self.kill_at = match (self.kill_at, wanted) {
            (Some(before), Some(wanted)) => Some(before.min(wanted)),
            (before, wanted) => before.or(wanted),
        };
        self.is_asked = true;
        self.hurry(now);
    }

    /// The program has ended, and its keeper has not reported it yet.
    pub(super) fn main_ended(&mut self, now: Instant) {
        if self.main_gone.is_none() {
            self.main_gone = Some(now);
            // A running keeper reports it at once.
            self.hurry(now);
        }
    }

    pub(super) fn knows_main_ended(&self) -> bool {
        self.main_gone.is_some()
    }

    /// The keeper reported the end of the program: it is alive, and only its last message is
    /// awaited.
    pub(super) fn main_reported(&mut self, now: Instant) {
        self.main_gone = None;
        self.is_polled = true;
        self.next = self.next.or(self.next_idle(now));
    }

    /// The keeper has something to do or to report: it is checked soon.
    pub(super) fn hurry(&mut self, now: Instant) {
        let soon = now + LOOK;
        self.next = Some(self.next.map_or(soon, |next| next.min(soon)));
    }

    fn next_idle(&self, now: Instant) -> Option<Instant> {
        self.is_polled.then(|| now + IDLE_LOOK)
    }

    /// What to do at this check.
    pub(super) fn step(&mut self, now: Instant, is_held: bool) -> Step {
        let is_idle = !self.is_asked && self.main_gone.is_none() && self.keeper_killed.is_none();
        self.next = if is_idle && !is_held {
            self.next_idle(now)
        } else {
            Some(now + LOOK)
        };
        if let Some(at) = self.keeper_killed {
            return if now >= at + HELD {
                Step::GiveUp
            } else {
                Step::Wait
            };
        }
        // If the program is gone and the keeper is stopped, nothing controls the rest of the tree.
        if is_held && self.kill_at.is_none() && self.main_gone.is_some_and(|at| now >= at + HELD) {
            self.kill_at = Some(now);
        }
        let Some(overdue) = self.kill_at.map(|at| at + MARGIN).filter(|at| now >= *at) else {
            return if is_held { Step::Wake } else { Step::Wait };
        };
        let is_late = now >= overdue + LONGEST;
        match self.empty_since {
            Some(since) if now >= since + HELD && (is_held || is_late) => {
                self.keeper_killed = Some(now);
                Step::KillKeeper
            }
            None if is_late => Step::GiveUp,
            _ => Step::Sweep,
        }
    }

    /// These were alive below the keeper at a sweep.
    pub(super) fn swept(&mut self, now: Instant, living: Vec<ProcKey>) {
        if !living.is_empty() {
            self.empty_since = None;
        } else if self.empty_since.is_none() {
            self.empty_since = Some(now);
        }
        for member in living {
            if !self.killed.contains(&member) {
                self.killed.push(member);
            }
        }
    }

    /// How many processes sweeps killed.
    pub(super) fn killed(&self) -> u32 {
        u32::try_from(self.killed.len()).unwrap_or(u32::MAX)
    }

    /// Whether a sweep found nothing below the keeper, and no later one found more.
    pub(super) fn is_empty(&self) -> bool {
        self.empty_since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn members(count: u32) -> Vec<ProcKey> {
        let member = |pid| ProcKey {
            pid,
            start_ticks: 1,
        };
        (1..=count).map(member).collect()
    }

    fn asked(grace: Duration) -> (Oversight, Instant) {
        let (mut oversight, now) = (Oversight::default(), Instant::now());
        oversight.started(now, true);
        assert_eq!(oversight.next_look(), None, "nothing is due");
        oversight.asked(now, grace);
        (oversight, now)
    }

    #[test]
    fn a_stopped_keeper_is_let_go_on_until_kill_is_overdue() {
        let (mut oversight, now) = asked(10 * MS);
        assert_eq!(oversight.next_look(), Some(now + LOOK));
        assert_eq!(oversight.step(now + 100 * MS, true), Step::Wake);
        assert_eq!(oversight.step(now + 200 * MS, false), Step::Wait);
        assert_eq!(oversight.step(now + 510 * MS, true), Step::Sweep);
    }

    #[test]
    fn a_held_keeper_of_an_empty_tree_is_killed_and_not_waited_for() {
        let (mut oversight, now) = asked(Duration::ZERO);
        assert_eq!(oversight.step(now + 500 * MS, true), Step::Sweep);
        oversight.swept(now + 500 * MS, members(3));
        assert_eq!(oversight.step(now + 600 * MS, true), Step::Sweep);
        oversight.swept(now + 600 * MS, members(0));
        assert!(oversight.is_empty());
        assert_eq!(oversight.killed(), 3);
        assert_eq!(oversight.step(now + 1000 * MS, true), Step::Sweep);
        assert_eq!(oversight.step(now + 1100 * MS, true), Step::KillKeeper);
        assert_eq!(oversight.step(now + 1200 * MS, true), Step::Wait);
        assert_eq!(oversight.step(now + 1600 * MS, true), Step::GiveUp);
    }

    #[test]
    fn a_keeper_that_is_only_slow_gets_more_time() {
        let (mut oversight, now) = asked(Duration::ZERO);
        oversight.step(now + 500 * MS, false);
        oversight.swept(now + 500 * MS, members(0));
        assert_eq!(oversight.step(now + 5400 * MS, false), Step::Sweep);
        assert_eq!(oversight.step(now + 5500 * MS, false), Step::KillKeeper);
    }

    #[test]
    fn every_story_ends_seven_seconds_after_kill_was_due() {
        for empty_after in 0..60 {
            for is_held in [false, true] {
                let (mut oversight, start) = asked(Duration::ZERO);
                let end = (1..).map(|tenth| (tenth, start + tenth * LOOK));
                let end = end.take(71).find(|(tenth, now)| {
                    let step = oversight.step(*now, is_held);
                    if step == Step::Sweep {
                        oversight.swept(*now, members(u32::from(*tenth < empty_after)));
                    }
                    step == Step::GiveUp
                });
                assert!(end.is_some(), "{empty_after} {is_held}");
            }
        }
    }

    #[test]
    fn what_the_kernel_cannot_end_is_given_up() {
        let (mut oversight, now) = asked(Duration::ZERO);
        oversight.step(now + 500 * MS, false);
        oversight.swept(now + 500 * MS, members(1));
        assert_eq!(oversight.step(now + 5400 * MS, false), Step::Sweep);
        assert_eq!(oversight.step(now + 5500 * MS, false), Step::GiveUp);
    }

    #[test]
    fn a_program_that_ended_behind_a_held_keeper_ends_the_tree() {
        let (mut oversight, now) = (Oversight::default(), Instant::now());
        oversight.main_ended(now);
        assert_eq!(oversight.step(now, false), Step::Wait);
        assert_eq!(oversight.step(now + 100 * MS, true), Step::Wake);
        assert_eq!(oversight.step(now + 500 * MS, true), Step::Wake);
        assert_eq!(oversight.step(now + 1000 * MS, true), Step::Sweep);
    }

    #[test]
    fn a_grace_without_an_end_has_no_deadline() {
        let (mut oversight, now) = asked(Duration::MAX);
        assert_eq!(oversight.step(now + 3600 * 1000 * MS, true), Step::Wake);
        oversight.asked(now, Duration::ZERO);
        assert_eq!(oversight.step(now + 500 * MS, true), Step::Sweep);
    }

    #[test]
    fn a_tree_without_a_descriptor_of_its_program_is_looked_at_from_time_to_time() {
        let (mut oversight, now) = (Oversight::default(), Instant::now());
        oversight.started(now, false);
        assert_eq!(oversight.next_look(), Some(now + IDLE_LOOK));
        assert_eq!(oversight.step(now + IDLE_LOOK, false), Step::Wait);
        assert_eq!(oversight.next_look(), Some(now + 2 * IDLE_LOOK));
        assert_eq!(oversight.step(now + 2 * IDLE_LOOK, true), Step::Wake);
        assert_eq!(oversight.next_look(), Some(now + 2 * IDLE_LOOK + LOOK));
    }

    #[test]
    fn a_keeper_with_an_unread_request_is_looked_at_until_it_runs() {
        let (mut oversight, now) = (Oversight::default(), Instant::now());
        oversight.started(now, true);
        oversight.hurry(now);
        assert_eq!(oversight.next_look(), Some(now + LOOK));
        assert_eq!(oversight.step(now + LOOK, true), Step::Wake);
        assert_eq!(oversight.next_look(), Some(now + 2 * LOOK));
        assert_eq!(oversight.step(now + 2 * LOOK, false), Step::Wait);
        assert_eq!(oversight.next_look(), None);
    }

    #[test]
    fn what_outlives_the_program_is_looked_at_from_time_to_time() {
        let (mut oversight, now) = (Oversight::default(), Instant::now());
        oversight.started(now, true);
        oversight.main_reported(now);
        assert_eq!(oversight.next_look(), Some(now + IDLE_LOOK));
    }
}
