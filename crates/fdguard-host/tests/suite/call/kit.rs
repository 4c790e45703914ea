//! Shared by the tests of calls.

use std::sync::{Arc, Mutex};

use fdguard_host::call::{
    AbortHandle, CallEvent, CallEventKind, CallPhase, CallSink, Caller, Options,
};
pub(super) use testkit::wait_until as until;

/// Every event that the sink received.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<CallEvent>>>);

impl Log {
    pub(super) fn sink(&self) -> Option<CallSink> {
        let log = Arc::clone(&self.0);
        Some(Arc::new(move |event: &CallEvent| {
            log.lock().unwrap().push(event.clone())
        }))
    }

    pub(super) fn all(&self) -> Vec<CallEvent> {
        self.0.lock().unwrap().clone()
    }

    pub(super) fn of(&self, what: CallEventKind) -> Vec<CallEvent> {
        let mut events = self.all();
        events.retain(|event| event.event == what);
        events
    }
}

pub(super) fn caller(log: &Log) -> Caller {
    Caller::new(Options {
        sink: log.sink(),
        system_roots: false,
        ..Options::default()
    })
    .unwrap()
}

pub(super) fn tls_caller(log: &Log, pem: &[u8]) -> Caller {
    let options = Options {
        sink: log.sink(),
        system_roots: false,
        extra_roots: pem.to_vec(),
        ..Options::default()
    };
    Caller::new(options).unwrap()
}

/// Descriptors of this process.
pub(super) fn descriptors() -> usize {
    // One of them lists.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

pub(super) fn until_descriptors(expected: usize) {
    until("descriptors at the baseline", || descriptors() == expected);
}

pub(super) fn until_phase(handle: &AbortHandle, phase: CallPhase) {
    until(&format!("phase {phase}"), || handle.info().phase == phase);
}

/// A thread that waits until the call is in that phase and aborts it then.
pub(super) fn abort_in(
    handle: AbortHandle,
    phase: CallPhase,
) -> std::thread::JoinHandle<fdguard_host::call::AbortResult> {
    let work = move || {
        until_phase(&handle, phase);
        handle.abort()
    };
    std::thread::Builder::new()
        .name("watchdog".to_owned())
        .spawn(work)
        .unwrap()
}
