//! A close by the thread that opened both what it meant and what it hit.
//!
//! Where two threads disagree, their descriptors show who closed what of whom (`stale.rs`). A
//! thread alone disagrees with itself: it closes a number a second time, hits what it has opened
//! there since, and fails when it uses that. Evidence: the use or the close of the owner failed
//! with `EBADF`; the thread itself had closed the descriptor; and the line that did so had also
//! closed, or tried to close, the descriptor that had the number before, which another line opened.

use super::context::{EventContext, called, is_deliberate};
use super::incident::party;
use super::{Fault, Hazard, double_close};
use crate::event::StackId;
use crate::ledger::{Actor, ClosedFd};
use crate::lint::Severity;
use crate::origin::{Culprit, Stack};
use crate::{Class, Fd};

/// Two closes of one number by one thread, of which the second may have been meant for the first
/// descriptor.
#[derive(Clone, Debug)]
pub(super) struct SecondClose {
    class: Option<Class>,
    /// Opened what was closed twice.
    opener: Actor,
    first: Actor,
    second: Actor,
    /// Opened what was hit.
    victim: Actor,
    /// The path of the second close is known to close what the opener opens.
    is_habit: bool,
    message: String,
}

impl SecondClose {
    /// What may have taken `lost` from the acting thread, which has just failed on it.
    pub(super) fn suspect(context: &EventContext<'_>, fd: Fd, lost: &ClosedFd) -> Option<Self> {
        let thread = context.event.thread;
        let is_own = |past: &ClosedFd| {
            let is_closer = past.closer.is_some_and(|closer| closer.thread == thread);
            is_closer
                && is_deliberate(past)
                && past.life.is_opened_by(thread)
                && !past.life.inherited
        };
        let mut past = context.slot(fd)?.past();
        let latest = past.next()?;
        let before = past.next()?;
        let is_latest = latest.life.generation == lost.life.generation;
        let is_other = before.life.stack() != lost.life.stack();
        if !(is_latest && is_other && is_own(lost) && is_own(before)) {
            return None;
        }
        let second = lost.closer?;
        Some(Self {
            class: before.life.class.clone(),
            opener: before.life.opener?,
            first: before.closer?,
            second,
            victim: lost.life.opener?,
            is_habit: context.memory.closes(second.stack, before.life.stack()) > 0,
            message: format!(
                "thread {thread} closed fd {fd} for a {} that it had already closed, and hit the \
                 {} that it had opened at that number",
                called(before.life.class.as_ref()),
                called(lost.life.class.as_ref()),
            ),
        })
    }

    /// The hazard that explains what the thread noticed, if the lines of both closes prove it.
    pub(super) fn explain(&self, noticed: Hazard, resolve: &dyn Fn(StackId) -> Stack) -> Hazard {
        let line =
            |actor: Actor| Culprit::from_stack(&actor.stack.map(resolve).unwrap_or_default());
        let is_same = |a: Actor, b: Actor| line(a).is_some_and(|known| Some(known) == line(b));
        let is_proven = self.is_habit || is_same(self.first, self.second);
        if !is_proven || is_same(self.opener, self.victim) {
            return noticed;
        }
        Hazard {
            rule: double_close::RULE.id.to_owned(),
            severity: Severity::Critical,
            class: self.class.clone(),
            opener: Some(party(self.opener, resolve)),
            closer: Some(party(self.second, resolve)),
            user: Some(party(self.first, resolve)),
            victim: Some(party(self.victim, resolve)),
            fault: Some(Fault::Closer),
            message: self.message.clone(),
            ..noticed
        }
    }
}
