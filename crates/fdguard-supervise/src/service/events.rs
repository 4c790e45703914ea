//! The events of a service's lifecycle.

use std::time::Duration;

use fdguard_proc::process;
use fdguard_process::signals;
use fdguard_process::tree::Exit;

use super::{Context, Service};
use crate::config::Background;
use crate::event::{LogEvent, LogValue};
use crate::lifecycle::{Halt, LeftProcesses, Notice, RunEnd, Unhealthy};

impl Service<'_> {
    pub(super) fn log(&mut self, notice: Notice, cx: &mut Context<'_>) {
        if let Some(event) = self.event(notice, cx) {
            cx.sink.emit(&event);
        }
    }

    /// The event of a notice. With `--once` the end of the program is not reported.
    fn event(&mut self, notice: Notice, cx: &mut Context<'_>) -> Option<LogEvent> {
        let event = |name| LogEvent::for_service(name, &self.settings.name);
        Some(match notice {
            Notice::Exited(_) | Notice::Halted { .. } if cx.once => return None,
            Notice::DependencyFailed(on) => event("down")
                .with("reason", "dependency")
                .with("dependency", on),
            Notice::Unhealthy(how) => self.unhealthy(&how, cx),
            Notice::Background(left) => self.background(&left),
            Notice::Orphans => {
                let members = self.run.as_ref()?.members();
                if members.is_empty() {
                    return None;
                }
                event("orphans")
                    .with("count", members.len())
                    .with("processes", named(&members))
                    .with("action", "ended")
            }
            Notice::Exited(end) => exited(event("exit"), &end),
            Notice::Restart { reason, exit } => {
                let event = with_exit(event("restart").with("reason", reason), Some(exit));
                let event = self.remedy_log.explain(event);
                event.with("restarts", self.lifecycle.restarts())
            }
            Notice::BackOff(delay) => event("backoff").with("delay_ms", millis(delay)),
            Notice::Halted { halt, exit } => self.halted(halt, exit),
            Notice::Remedy(notice) => {
                let (leaks, main) = (self.budgets.meter.leaks(), self.main());
                self.remedy_log
                    .event(notice, &self.settings, leaks, main, cx)
            }
        })
    }

    fn unhealthy(&self, how: &Unhealthy, cx: &Context<'_>) -> LogEvent {
        let event = |name| LogEvent::for_service(name, self.name());
        match how {
            Unhealthy::Check { why, failures } => event("unhealthy")
                .with("failures", *failures)
                .with("text", why.as_str()),
            Unhealthy::Watchdog(text) => event("watchdog").with("text", *text),
            Unhealthy::NotReady => event("not_ready")
                .with("after_ms", self.uptime(cx.now).map(millis))
                .with("text", "not ready in time"),
        }
    }

    fn background(&self, left: &LeftProcesses) -> LogEvent {
        let explanation = "the program exited with status 0 and left a listening process behind: it starts its server in the background. \
                           A supervisor that restarted it now would start a second server on a port in use. \
                           Use the server itself as the command, or its foreground option";
        let action = match self.settings.background {
            Background::Adopt => "adopted",
            Background::End => "ended",
            Background::Fail => "failed",
        };
        LogEvent::for_service("background", self.name())
            .with("action", action)
            .with("listening", left.listening.join(","))
            .with("processes", named(&left.pids))
            .with("text", explanation)
    }

    fn halted(&self, halt: Halt, exit: Exit) -> LogEvent {
        let event = match halt {
            Halt::CrashLoop { ends, within } => LogEvent::for_service("crash_loop", self.name())
                .with("ends", ends)
                .with("within_s", seconds(within)),
            _ => LogEvent::for_service("down", self.name()).with("reason", halt.to_string()),
        };
        let text = match halt {
            Halt::CrashLoop { .. } => "it crashed too often and stays down",
            Halt::Never => "it failed and restarts are disabled",
            Halt::StopOn => "it exited with a status listed in --stop-on",
            Halt::NotRunnable => "the program cannot be run and is not retried",
        };
        with_exit(event, Some(exit))
            .with("last_output", self.output.last_lines())
            .with("text", text)
    }
}

fn exited(event: LogEvent, end: &RunEnd) -> LogEvent {
    with_exit(event.with("pid", end.pid), end.exit)
        .with("uptime_s", seconds(end.up))
        .with("killed", end.killed)
        .with("reaped", end.reaped)
}

fn with_exit(event: LogEvent, exit: Option<Exit>) -> LogEvent {
    match exit {
        Some(Exit::Code(code)) => event.with("status", u32::from(code)),
        Some(Exit::Signal(signal)) => event.with("signal", signals::name_of(signal)),
        None => event.with("status", LogValue::Unknown),
    }
}

/// Processes by name and pid; the names are the kernel's.
fn named(pids: &[u32]) -> String {
    let name = |pid: &u32| format!("{}({pid})", process::name(*pid).unwrap_or_default());
    pids.iter().map(name).collect::<Vec<_>>().join(" ")
}

pub(super) fn seconds(length: Duration) -> f64 {
    (length.as_secs_f64() * 1000.0).round() / 1000.0
}

pub(super) fn millis(length: Duration) -> f64 {
    (length.as_secs_f64() * 1e6).round() / 1000.0
}
