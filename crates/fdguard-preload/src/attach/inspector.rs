//! Wakes Node's inspector without a signal. A signal could kill the program, if Node's handler went
//! away just before; a call of the handler cannot. See decision 089.

#![expect(unsafe_code, reason = "calls a signal handler of the program")]

use core::ffi::{c_int, c_void};
use core::ptr;

use fdguard_wire::{InspectorAnswer, InspectorRequest};

use crate::sys::{self, SignalAction};

const SIGUSR1: c_int = 10;
/// The addresses that mean no handler: the default, and ignored.
const NO_HANDLERS: [usize; 2] = [0, 1];
const SA_SIGINFO: usize = 4;
const SA_RESTART: usize = 0x1000_0000;
const SA_RESETHAND: usize = 0x8000_0000;

/// The handler's type: Node's takes three arguments and uses none of them.
type Handler = unsafe extern "C" fn(c_int, *const c_void, *const c_void);

/// Calls Node's handler of SIGUSR1, if there is one.
pub(super) fn wake(request: &[u8]) -> InspectorAnswer {
    let Some(node) = InspectorRequest::read(request) else {
        return InspectorAnswer::BadRequest;
    };
    let action = sys::signal_action(SIGUSR1);
    let answer = judge(action, node);
    if answer == InspectorAnswer::Woken
        && let Some(action) = action
    {
        let address = ptr::with_exposed_provenance::<c_void>(action.handler);
        // SAFETY: the kernel has this address as the handler of a signal, and it is not one of the
        // two that are no functions.
        let handler = unsafe { core::mem::transmute::<*const c_void, Handler>(address) };
        // SAFETY: a handler may be called on any thread at any time; this one does what a handler
        // may do (it posts a semaphore) and reads no argument.
        unsafe { handler(SIGUSR1, ptr::null(), ptr::null()) };
    }
    answer
}

/// Node installs its handler without any flag. `process.on('SIGUSR1')` replaces it by libuv's,
/// which restarts calls; both are in Node's code. A handler outside of that code is an addon's.
fn judge(action: Option<SignalAction>, node: InspectorRequest) -> InspectorAnswer {
    let Some(action) = action.filter(|action| !NO_HANDLERS.contains(&action.handler)) else {
        return InspectorAnswer::Unhandled;
    };
    let is_inside = (node.start..node.end).contains(&(action.handler as u64));
    let has_flags = action.flags & (SA_SIGINFO | SA_RESTART | SA_RESETHAND) != 0;
    if is_inside && !has_flags {
        InspectorAnswer::Woken
    } else {
        InspectorAnswer::Handled
    }
}

#[cfg(test)]
mod tests {
    use fdguard_wire::{InspectorAnswer, InspectorRequest};

    use super::{SA_RESTART, judge};
    use crate::sys::SignalAction;

    #[test]
    fn only_the_handler_of_node_is_called() {
        const RESTORER: usize = 0x0400_0000;
        let node = InspectorRequest {
            start: 0x1000,
            end: 0x2000,
        };
        let judge = |handler, flags| judge(Some(SignalAction { handler, flags }), node);
        assert_eq!(judge(0x1800, RESTORER), InspectorAnswer::Woken);
        let restarts = RESTORER | SA_RESTART;
        assert_eq!(judge(0x1800, restarts), InspectorAnswer::Handled, "libuv");
        assert_eq!(judge(0x2000, RESTORER), InspectorAnswer::Handled, "addon");
        assert_eq!(judge(0, 0), InspectorAnswer::Unhandled);
        assert_eq!(judge(1, 0), InspectorAnswer::Unhandled);
        assert_eq!(super::judge(None, node), InspectorAnswer::Unhandled);
    }
}
