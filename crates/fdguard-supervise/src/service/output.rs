//! Output of the program: passed on, logged, and kept for the crash report.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::Context;
use super::health::Health;
use crate::config::ServiceConfig;
use crate::event::LogEvent;
use crate::health::{CheckSpec, Kind};
use crate::output::{OutputEvent, ServiceOutput};
use crate::poll::{Interest, Readiness};

/// The captured output, from the first run whose lines are needed.
#[derive(Debug, Default)]
pub(super) struct Output {
    captured: Option<ServiceOutput>,
}

impl Output {
    /// The program's standard output and error; fdguard's own if its lines are not needed. After a
    /// short run they are: the last lines of a crash loop are more informative than its status.
    pub(super) fn streams(
        &mut self,
        settings: &ServiceConfig,
        is_troubled: bool,
        cx: &mut Context<'_>,
    ) -> [Option<Arc<OwnedFd>>; 3] {
        let is_line = |spec: &CheckSpec| matches!(spec.kind, Kind::Line(_));
        let needs_lines = settings.ready.as_ref().is_some_and(is_line);
        let may_loop = settings.policy.crash_loop.is_some() && !cx.once;
        let is_wanted = needs_lines || (may_loop && is_troubled);
        if !settings.output.is_captured(is_wanted) {
            return [None, None, None];
        }
        match self.capture(settings, cx) {
            Ok([out, err]) => [None, Some(Arc::new(out)), Some(Arc::new(err))],
            Err(error) => {
                let event = LogEvent::for_service("log_failed", &settings.name);
                let text = format!("cannot capture output, passing it through: {error}");
                cx.sink.emit(&event.with("text", text));
                [None, None, None]
            }
        }
    }

    fn capture(
        &mut self,
        settings: &ServiceConfig,
        cx: &mut Context<'_>,
    ) -> io::Result<[OwnedFd; 2]> {
        if let Some(captured) = &mut self.captured {
            return captured.start();
        }
        let ours = [rustix::stdio::stdout(), rustix::stdio::stderr()];
        let opened = ServiceOutput::open(&settings.output, &settings.name, ours);
        let opened = opened.inspect_err(|error| {
            let event = LogEvent::for_service("log_failed", &settings.name);
            cx.sink.emit(&event.with("text", error.to_string()));
        });
        self.captured.insert(opened?).start()
    }

    pub(super) fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        if let Some(captured) = &self.captured {
            captured.wants(wants);
        }
    }

    /// Reads what the program wrote.
    pub(super) fn poll(
        &mut self,
        settings: &ServiceConfig,
        health: &mut Health,
        cx: &mut Context<'_>,
        ready: &Readiness,
    ) {
        let Some(captured) = &mut self.captured else {
            return;
        };
        let mut heard = |line: &[u8]| health.hear_line(line);
        for event in captured.poll(cx.now, ready, &mut heard) {
            cx.sink.emit(&log_event(&event, &settings.name));
        }
    }

    /// The run is over: no process writes to its pipes any more.
    pub(super) fn end(&mut self) {
        if let Some(captured) = &mut self.captured {
            captured.ended();
        }
    }

    /// Reopens its log files.
    pub(super) fn reopen(&mut self) {
        if let Some(captured) = &mut self.captured {
            captured.reopen();
        }
    }

    /// The last lines, for the crash report.
    pub(super) fn last_lines(&self) -> Option<String> {
        let lines = self.captured.as_ref()?.last().lines();
        let lines: Vec<String> = lines
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// Whether all of it has been written.
    pub(super) fn is_written(&self) -> bool {
        self.captured.as_ref().is_none_or(ServiceOutput::is_idle)
    }

    pub(super) fn lines_dropped(&self) -> u64 {
        let captured = self.captured.as_ref();
        captured.map_or(0, |captured| captured.dropped().lines)
    }
}

fn log_event(event: &OutputEvent, service: &str) -> LogEvent {
    let failed = LogEvent::for_service("log_failed", service);
    match event {
        OutputEvent::LogFailing { path, why } => {
            failed.with("file", path.display().to_string()).with(
                "text",
                format!("{why}; buffering lines in memory while there is room"),
            )
        }
        OutputEvent::LogBack { path, dropped } => LogEvent::for_service("log_back", service)
            .with("file", path.display().to_string())
            .with("dropped", dropped.lines),
        OutputEvent::NotRotated { path, why } => {
            failed.with("file", path.display().to_string()).with(
                "text",
                format!("cannot rotate the log, it keeps growing: {why}"),
            )
        }
        OutputEvent::NobodyReads { stream, why } => failed
            .with("stream", *stream)
            .with("text", format!("nothing reads this stream any more: {why}")),
    }
}
