//! A call on a descriptor number that was never open.
//!
//! Evidence: the call fails with `EBADF`, and the number was not open since the program began; a
//! negative one never is. It does no harm by itself, so it is only info: usually the result of a
//! failed call was not checked. Not judged: series of closes, calls that programs use to probe, the
//! standard streams, and forked processes, which may mean a number that the parent had closed.

use super::context::{EventContext, is_stream};
use super::incident::Incident;
use super::{Fault, Rule, RuleKind};
use crate::Fd;
use crate::event::{CloseCall, Errno, FdCall, What};
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "never-open",
    kind: RuleKind::Hazard,
    severity: Severity::Info,
    summary: "a call uses a descriptor number that was never open",
    cwe: None,
    requirement: "R40",
    fix: Some(
        "check the result of the call that should have returned the descriptor before using it",
    ),
};

pub(super) fn check(context: &EventContext<'_>) -> Vec<Incident> {
    let (fd, call) = match context.event.what {
        What::Close {
            fd,
            call: CloseCall::Close,
            errno: Some(Errno::Ebadf),
        } => (fd, None),
        What::Use {
            fd,
            call,
            errno: Some(Errno::Ebadf),
            ..
        } if call != FdCall::Other => (fd, Some(call)),
        _ => return Vec::new(),
    };
    if is_stream(fd) || !was_never_open(context, fd) {
        return Vec::new();
    }
    vec![found(context, fd, call)]
}

fn was_never_open(context: &EventContext<'_>, fd: Fd) -> bool {
    let process = context.event.process;
    negative(fd).is_some() || context.ledger.was_never_open(process, fd)
}

/// The number as the program wrote it, if negative.
fn negative(fd: Fd) -> Option<i32> {
    let number = fd.cast_signed();
    (number < 0).then_some(number)
}

fn found(context: &EventContext<'_>, fd: Fd, call: Option<FdCall>) -> Incident {
    let thread = context.event.thread;
    let number = negative(fd).map_or_else(|| fd.to_string(), |number| number.to_string());
    let did = match call {
        Some(call) => format!("called {}() on fd {number}", call.name()),
        None => format!("closed fd {number}"),
    };
    let message = format!("thread {thread} {did} (EBADF): the number was never open");
    let actor = Some(context.actor());
    let (closer, user, fault) = match call {
        Some(_) => (None, actor, Fault::User),
        None => (actor, None, Fault::Closer),
    };
    Incident {
        fd: negative(fd).is_none().then_some(fd),
        closer,
        user,
        fault: Some(fault),
        // Code that closes a series of numbers does not care which are open.
        may_be_sweep: call.is_none(),
        ..context.incident(fd, message)
    }
}
