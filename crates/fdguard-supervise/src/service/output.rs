//! Output of the program: passed on, logged, and kept for the crash report.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{Context, Service};
use crate::event::LogEvent;
use crate::health;
use crate::output::{OutputEvent, ServiceOutput};
use crate::poll::Readiness;

impl Service<'_> {
    /// The program's standard output and error; fdguard's own if its lines are not needed. After a
    /// short run they are: the last lines of a crash loop are more informative than its status.
    pub(super) fn streams(&mut self, cx: &mut Context<'_>) -> [Option<Arc<OwnedFd>>; 3] {
        let is_line = |spec: &health::CheckSpec| matches!(spec.kind, health::Kind::Line(_));
        let needs_lines = self.settings.ready.as_ref().is_some_and(is_line);
        let may_loop = self.settings.policy.crash_loop.is_some() && !cx.once;
        let is_wanted = needs_lines || (may_loop && self.history.is_troubled());
        if !self.settings.output.is_captured(is_wanted) {
            return [None, None, None];
        }
        let begun = self.open_output(cx).and_then(ServiceOutput::start);
        match begun {
            Ok([out, err]) => [None, Some(Arc::new(out)), Some(Arc::new(err))],
            Err(error) => {
                let event = LogEvent::for_service("log_failed", self.name());
                let text = format!("cannot capture output, passing it through: {error}");
                cx.sink.emit(&event.with("text", text));
                [None, None, None]
            }
        }
    }

    fn open_output(&mut self, cx: &mut Context<'_>) -> std::io::Result<&mut ServiceOutput> {
        if self.output.is_none() {
            let ours = [rustix::stdio::stdout(), rustix::stdio::stderr()];
            let form = &self.settings.output;
            let opened = ServiceOutput::open(form, &self.settings.name, ours);
            if let Err(error) = &opened {
                let event = LogEvent::for_service("log_failed", &self.settings.name);
                cx.sink.emit(&event.with("text", error.to_string()));
            }
            self.output = Some(opened?);
        }
        self.output
            .as_mut()
            .ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    /// Reads its output.
    pub(super) fn hear_output(&mut self, cx: &mut Context<'_>, ready: &Readiness) {
        let Some(output) = &mut self.output else {
            return;
        };
        let check = &mut self.ready;
        let mut heard = |line: &[u8]| {
            if let Some(check) = check {
                check.hear(line);
            }
        };
        for happened in output.poll(cx.now, ready, &mut heard) {
            self.tell_output(&happened, cx);
        }
    }

    fn tell_output(&self, happened: &OutputEvent, cx: &mut Context<'_>) {
        let failed = LogEvent::for_service("log_failed", self.name());
        let event = match happened {
            OutputEvent::LogFailing { path, why } => {
                failed.with("file", path.display().to_string()).with(
                    "text",
                    format!("{why}; buffering lines in memory while there is room"),
                )
            }
            OutputEvent::LogBack { path, dropped } => {
                LogEvent::for_service("log_back", self.name())
                    .with("file", path.display().to_string())
                    .with("dropped", dropped.lines)
            }
            OutputEvent::NotRotated { path, why } => {
                failed.with("file", path.display().to_string()).with(
                    "text",
                    format!("cannot rotate the log, it keeps growing: {why}"),
                )
            }
            OutputEvent::NobodyReads { stream, why } => failed
                .with("stream", *stream)
                .with("text", format!("nothing reads this stream any more: {why}")),
        };
        cx.sink.emit(&event);
    }

    /// The last lines, for the crash report.
    pub(super) fn last_words(&self) -> Option<String> {
        let lines = self.output.as_ref()?.last().lines();
        let lines: Vec<String> = lines
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// Whether all of its output has been written.
    pub(crate) fn is_written(&self) -> bool {
        self.output.as_ref().is_none_or(ServiceOutput::is_idle)
    }
}
