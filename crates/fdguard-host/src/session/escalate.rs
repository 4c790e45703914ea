//! Escalation plan for a command that must end: what to send, and when. Pure.

use std::time::Duration;

/// One thing that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// INT to the group in the foreground.
    Interrupt,
    /// QUIT to it.
    Quit,
    /// KILL to all but the program itself.
    KillOthers,
    /// The program is replaced.
    Reset,
}

/// One second to clean up after an INT, then harder signals step by step. The second INT is for
/// programs that had no handler yet when the first arrived.
const STEPS: [(Duration, Step); 5] = [
    (Duration::ZERO, Step::Interrupt),
    (Duration::from_millis(500), Step::Interrupt),
    (Duration::from_millis(1000), Step::Quit),
    (Duration::from_millis(1200), Step::KillOthers),
    (Duration::from_millis(2500), Step::Reset),
];

/// The progress of an escalation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Escalation {
    done: usize,
}

impl Escalation {
    /// When to take the next step, counted from the first.
    pub(super) fn due(self) -> Option<Duration> {
        STEPS.get(self.done).map(|(at, _)| *at)
    }

    /// The next step, if its time has come.
    pub(super) fn next(&mut self, elapsed: Duration) -> Option<Step> {
        let (at, step) = STEPS.get(self.done)?;
        if elapsed < *at {
            return None;
        }
        self.done += 1;
        Some(*step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_comes_once_and_not_before_its_time() {
        let mut escalation = Escalation::default();
        let ms = Duration::from_millis;
        assert_eq!(escalation.next(ms(0)), Some(Step::Interrupt));
        assert_eq!(escalation.next(ms(499)), None);
        assert_eq!(escalation.due(), Some(ms(500)));
        assert_eq!(escalation.next(ms(500)), Some(Step::Interrupt));
        assert_eq!(escalation.next(ms(5000)), Some(Step::Quit));
        assert_eq!(escalation.next(ms(5000)), Some(Step::KillOthers));
        assert_eq!(escalation.next(ms(5000)), Some(Step::Reset));
        assert_eq!(escalation.next(ms(5000)), None);
        assert_eq!(escalation.due(), None);
    }
}
