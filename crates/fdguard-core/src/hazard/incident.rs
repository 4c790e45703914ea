//! A hazard before its stacks are resolved.

use jiff::Timestamp;

use super::overlap::Doubt;
use super::second_close::SecondClose;
use super::{Fault, Hazard, Party, Rule};
use crate::event::StackId;
use crate::ledger::{Actor, FdLifetime, Generation, Tally};
use crate::lint::Severity;
use crate::origin::{Culprit, Stack};
use crate::{Class, Fd, TraceKey};

/// What a check found.
#[derive(Clone, Debug)]
pub(super) struct Incident {
    pub(super) process: TraceKey,
    pub(super) fd: Option<Fd>,
    pub(super) class: Option<Class>,
    pub(super) at: u64,
    pub(super) opener: Option<Actor>,
    pub(super) closer: Option<Actor>,
    pub(super) user: Option<Actor>,
    pub(super) victim: Option<Actor>,
    pub(super) fault: Option<Fault>,
    pub(super) holders: Vec<Tally>,
    pub(super) message: String,
    /// How much it matters, where that depends on the circumstances; otherwise the severity of its
    /// rule.
    pub(super) severity: Option<Severity>,
    /// It is about the close of this descriptor and is reported once, however often its owner
    /// notices.
    pub(super) once: Option<Generation>,
    /// Protection prevented the harm.
    pub(super) prevented: bool,
    /// A failed close: it counts only if it is not part of a series of numbers.
    pub(super) may_be_sweep: bool,
    /// It counts only if the locks were still held when the close happened.
    pub(super) doubt: Option<Doubt>,
    /// What explains it, if the lines prove that once they are known.
    pub(super) second_close: Option<SecondClose>,
    /// This line works on descriptors of the same origin as this one.
    pub(super) teaches: Option<(StackId, Box<FdLifetime>)>,
}

/// What makes two incidents the same hazard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    process: TraceKey,
    rule: &'static str,
    stacks: [Option<StackId>; 3],
    fault: Option<Fault>,
    prevented: bool,
}

impl Incident {
    pub(super) fn new(process: TraceKey, at: u64, message: String) -> Self {
        Self {
            process,
            fd: None,
            class: None,
            at,
            opener: None,
            closer: None,
            user: None,
            victim: None,
            fault: None,
            holders: Vec::new(),
            message,
            severity: None,
            once: None,
            prevented: false,
            may_be_sweep: false,
            doubt: None,
            second_close: None,
            teaches: None,
        }
    }

    pub(super) fn key(&self, rule: &Rule) -> Key {
        let stack = |actor: Option<Actor>| actor.and_then(|actor| actor.stack);
        Key {
            process: self.process,
            rule: rule.id,
            stacks: [self.opener, self.closer, self.user].map(stack),
            fault: self.fault,
            prevented: self.prevented,
        }
    }

    /// How much it matters.
    pub(super) fn severity(&self, rule: &Rule) -> Severity {
        self.severity.unwrap_or(rule.severity)
    }

    pub(super) fn hazard(
        &self,
        rule: &Rule,
        count: u64,
        resolve: &dyn Fn(StackId) -> Stack,
        clock: &dyn Fn(u64) -> Timestamp,
    ) -> Hazard {
        let party = |actor: Option<Actor>| actor.map(|actor| party(actor, resolve));
        let origin = |tally: &Tally| tally.origin(self.at, resolve);
        let hazard = Hazard {
            pid: self.process.pid,
            rule: rule.id.to_owned(),
            severity: self.severity(rule),
            fd: self.fd,
            class: self.class.clone(),
            when: clock(self.at),
            count,
            prevented: self.prevented,
            opener: party(self.opener),
            closer: party(self.closer),
            user: party(self.user),
            victim: party(self.victim),
            fault: self.fault,
            holders: self.holders.iter().map(origin).collect(),
            message: self.message.clone(),
            cleared: None,
        };
        let explained = match &self.second_close {
            Some(second_close) => second_close.explain(hazard, resolve),
            None => hazard,
        };
        explained.with_program_first()
    }
}

pub(super) fn party(actor: Actor, resolve: &dyn Fn(StackId) -> Stack) -> Party {
    let stack = actor.stack.map(resolve).unwrap_or_default();
    Party {
        thread: Some(actor.thread),
        culprit: Culprit::from_stack(&stack),
        stack,
    }
}
