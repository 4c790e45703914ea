//! What was put into a service from outside: when it begins, what it knows, when it is over.

use std::ffi::OsString;

use super::{Context, Service};
use crate::relief::Breach;

impl Service<'_> {
    /// A program is about to be started with this environment.
    pub(super) fn inject(&self, environment: &mut Vec<(OsString, OsString)>, cx: &mut Context<'_>) {
        let Some(injector) = &mut cx.injector else {
            return;
        };
        let (name, command) = (&self.settings.name, &self.settings.command);
        let begin = || injector.begin(name, command, environment);
        for event in cx.reserve.lend(begin) {
            cx.sink.tell(&event);
        }
    }

    /// Nothing of a run is left, or there was none: what was put into it has nothing to do any more.
    pub(super) fn end_injected(&self, cx: &mut Context<'_>) {
        if let Some(injector) = &mut cx.injector {
            for event in injector.ended(&self.settings.name) {
                cx.sink.tell(&event);
            }
        }
    }

    /// The place in the code that opened most, where something was put into the program that knows and it is not known yet. Of the process
    /// that goes: later there is another one.
    pub(super) fn find_line(&mut self, breach: &Breach, cx: &mut Context<'_>) {
        let Some(injector) = &mut cx.injector else {
            return;
        };
        let main = self.run.as_ref().map(|run| run.main);
        if let Some(pid) = breach.passed.pid.or(main)
            && self.thrift.line.is_none()
        {
            self.thrift.line = injector.line(&self.settings.name, pid);
        }
    }
}
