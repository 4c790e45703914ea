//! The lifetime of an injected tracer or protection in a service.

use std::ffi::OsString;

use super::{Context, Service};
use crate::remedy::RemedyNotice;

impl Service<'_> {
    /// A program is about to be started with this environment.
    pub(super) fn inject(&self, environment: &mut Vec<(OsString, OsString)>, cx: &mut Context<'_>) {
        let Some(injector) = &mut cx.injector else {
            return;
        };
        let (name, command) = (&self.settings.name, &self.settings.command);
        let begin = || injector.start(name, command, environment);
        for event in cx.reserve.lend(begin) {
            cx.sink.emit(&event);
        }
    }

    /// Nothing of a run is left, or there was none: ends the injection.
    pub(super) fn end_injected(&self, cx: &mut Context<'_>) {
        if let Some(injector) = &mut cx.injector {
            for event in injector.ended(&self.settings.name) {
                cx.sink.emit(&event);
            }
        }
    }

    /// The site that opened most, if an injected tracer knows: looked up when a breach is first
    /// reported, and once more after the steps that take long, because the lines of a large program
    /// take longer than a moment.
    pub(super) fn find_line_of(&mut self, told: &RemedyNotice, cx: &mut Context<'_>) {
        let known = self
            .thrift
            .breach
            .as_ref()
            .map(|(breach, _)| breach.passed.pid);
        let pid = match told {
            RemedyNotice::Waits(_) => {
                self.thrift.line = None;
                return;
            }
            RemedyNotice::Begun(breach) => {
                self.thrift.line = None;
                breach.passed.pid
            }
            RemedyNotice::Again(again) => {
                self.thrift.line = None;
                again.breach.passed.pid
            }
            RemedyNotice::Evidence(_) | RemedyNotice::Drained(..) if self.thrift.line.is_none() => {
                known.flatten()
            }
            _ => return,
        };
        // The process that is being stopped: later there is another one.
        let main = self.run.as_ref().map(|run| run.main);
        if let (Some(pid), Some(injector)) = (pid.or(main), &mut cx.injector) {
            self.thrift.line = injector.line(&self.settings.name, pid);
        }
    }
}
