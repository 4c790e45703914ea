//! Signals.

use std::time::Instant;

use fdguard_process::signals::{self, ReceivedSignal};
use rustix::process::Signal;

use super::{Stopping, Supervisor, self_check};
use crate::event::LogEvent;
use crate::lifecycle::Request;
use crate::poll::Readiness;

impl Supervisor<'_> {
    pub(super) fn hear_signals(&mut self, ready: &Readiness) {
        if !ready.has(&self.signals) {
            return;
        }
        while let Some(heard) = self.signals.next() {
            if self.settings.once {
                self.pass_on(heard);
            } else {
                self.obey(heard.signal);
            }
        }
    }

    /// With `--once` all signals belong to the program. It has already received those of the
    /// terminal, because it is in the same group.
    fn pass_on(&mut self, heard: ReceivedSignal) {
        let is_int = heard.signal == Signal::INT.as_raw();
        if is_int && std::mem::replace(&mut self.was_interrupted, is_int) {
            return self.each(|service, cx, _| service.ask(Request::Kill, cx));
        }
        if heard.sender != 0 {
            self.each(|service, _, _| service.forward(heard.signal));
        }
    }

    fn obey(&mut self, signal: i32) {
        match Signal::from_named_raw(signal) {
            Some(Signal::TERM) => self.stop(signal),
            Some(Signal::INT) if self.stopping.is_some() => self.hurry(),
            Some(Signal::INT) => self.stop(signal),
            Some(Signal::HUP) => self.reload(),
            Some(Signal::QUIT) => self.tell_state(),
            Some(Signal::USR1) => self.reopen_logs(),
            _ => self.each(|service, _, _| service.forward(signal)),
        }
    }

    fn stop(&mut self, signal: i32) {
        if self.stopping.is_some() {
            return;
        }
        let stopping = stopping_by(signal);
        let event = LogEvent::new("stopping").with("why", stopping.why.as_str());
        self.sink.emit(&event);
        self.stopping = Some(stopping);
        self.above.stopping(&mut self.sink);
    }

    /// A second Ctrl-C: kill at once.
    fn hurry(&mut self) {
        self.sink.emit(
            &LogEvent::new("stopping")
                .with("why", "second SIGINT")
                .with("kill", true),
        );
        self.each(|service, cx, _| service.ask(Request::Kill, cx));
    }

    fn reopen_logs(&mut self) {
        self.each(|service, _, _| service.reopen_logs());
    }

    /// Logs one line for the supervisor and one for each service.
    fn tell_state(&mut self) {
        let now = Instant::now();
        let up = now.saturating_duration_since(self.began).as_secs();
        let event = LogEvent::new("state")
            .with("pid", std::process::id())
            .with("uptime_s", up)
            .with("fds", self_check::descriptors())
            .with("stopping", self.stopping.is_some());
        self.sink.emit(&event);
        self.each(|service, cx, _| {
            let event = service.told_state(cx.now);
            cx.sink.emit(&event);
        });
    }
}

fn stopping_by(signal: i32) -> Stopping {
    Stopping {
        why: signals::name_of(signal),
    }
}
