//! The end of a run, and what follows.

use std::time::Duration;

use fdguard_process::tree::{Exit, StopPlan, TreeEvent};
use fdguard_process::{random, signals};

use super::listening;
use super::run::{Ending, LOOK, Run, SETTLE, Settle, status};
use super::{Context, Service, State, Survivors};
use crate::config::Background;
use crate::event::{LogEvent, LogValue};
use crate::policy::{EndCause, Halt, NextStep};
use crate::poll::Readiness;

/// A process left behind by a program does no useful work, and delays its successor.
const LEFT_GRACE: Duration = Duration::from_millis(500);

impl Service<'_> {
    /// Starts ending the run.
    pub(super) fn end_run(&mut self, ending: Ending) {
        self.end_run_within(ending, self.settings.stop.grace);
    }

    fn end_run_within(&mut self, ending: Ending, grace: Duration) {
        let Some(run) = &mut self.run else { return };
        let first = run.ending.is_none();
        // A request to stop overrides a request to restart.
        if first || ending == Ending::Stop {
            run.ending = Some(ending);
        }
        if !first {
            return;
        }
        run.tree.stop(StopPlan {
            grace,
            ..self.settings.stop
        });
        run.settle = None;
        run.ready_until = None;
        run.watchdog = None;
        self.state = State::Stopping;
        for check in self.ready.iter_mut().chain(&mut self.checks) {
            check.end();
        }
        self.thrift.pause();
    }

    /// Reads events from the keeper.
    pub(super) fn hear_keeper(&mut self, cx: &mut Context<'_>, ready: &Readiness) {
        let heard = |run: &Run| {
            let is_due = run.tree.deadline().is_some_and(|at| at <= cx.now);
            let has_ended = run.tree.program_end().is_some_and(|end| ready.has(end));
            is_due || has_ended || ready.has(run.tree.fd())
        };
        if !self.run.as_ref().is_some_and(heard) {
            return;
        }
        while let Some(told) = self.run.as_mut().and_then(|run| run.tree.told()) {
            match told {
                TreeEvent::MainEnded { exit, left } if left > 0 => self.main_ended(exit, cx),
                TreeEvent::Empty {
                    exit,
                    killed,
                    reaped,
                } => {
                    self.killed += u64::from(killed);
                    return self.over(Some(exit), killed, reaped, cx);
                }
                TreeEvent::Lost => return self.keeper_lost(cx),
                _ => {}
            }
        }
    }

    /// Its keeper was killed, or was stopped or traced until fdguard killed it.
    fn keeper_lost(&mut self, cx: &mut Context<'_>) {
        let left = self.run.as_ref().and_then(|run| run.tree.orphans_left());
        let left = Survivors(left.map(u64::from));
        self.survivors.add(left);
        let text = match left.0 {
            Some(0) => "its keeper process was killed or stopped; all of its processes were ended",
            Some(_) => {
                "its keeper process was killed or stopped; some of its processes could not be ended"
            }
            None => "its keeper process was killed; all known processes were ended",
        };
        let event = LogEvent::for_service("keeper_lost", self.name()).with("survivors", left.0);
        cx.sink.emit(&event.with("text", text));
        self.over(None, 0, 0, cx);
    }

    /// The program ended and left processes behind.
    fn main_ended(&mut self, exit: Exit, cx: &mut Context<'_>) {
        let Some(run) = &mut self.run else { return };
        if run.ending.is_some() {
            return;
        }
        if exit == Exit::Code(0) && !cx.once {
            run.settle = Some(Settle {
                until: cx.now + SETTLE,
                next: cx.now,
            });
            return self.finish_run(cx);
        }
        self.end_the_left(Ending::Left, self.left_grace(), cx);
    }

    /// Finds out whether one of the remaining processes is the service itself: restarting a program
    /// that starts its server in the background would loop.
    pub(super) fn finish_run(&mut self, cx: &mut Context<'_>) {
        let Some(run) = &mut self.run else { return };
        let Some(settle) = run.settle.filter(|settle| settle.next <= cx.now) else {
            return;
        };
        let members = run.tree.members();
        let listening = listening::places(&members);
        if listening.is_empty() {
            if cx.now >= settle.until {
                return self.end_the_left(Ending::Left, self.left_grace(), cx);
            }
            let next = cx.now + LOOK;
            run.settle = Some(Settle { next, ..settle });
            return;
        }
        run.settle = None;
        let explanation = "the program exited with status 0 and left a listening process behind: it starts its server in the background. \
                           A supervisor that restarted it now would start a second server on a port in use. \
                           Use the server itself as the command, or its foreground option";
        let action = match self.settings.background {
            Background::Adopt => "adopted",
            Background::End => "ended",
            Background::Fail => "failed",
        };
        let event = LogEvent::for_service("background", self.name())
            .with("action", action)
            .with("listening", listening.join(","))
            .with("processes", named(&members));
        cx.sink.emit(&event.with("text", explanation));
        match self.settings.background {
            Background::Adopt => self.adopt(&members, cx),
            Background::End => self.end_the_left(Ending::Left, self.settings.stop.grace, cx),
            Background::Fail => {
                self.end_the_left(Ending::Down(1), self.settings.stop.grace, cx);
            }
        }
    }

    fn adopt(&mut self, members: &[u32], cx: &mut Context<'_>) {
        let Some(run) = &mut self.run else { return };
        run.is_adopted = true;
        run.main = members.first().copied().unwrap_or(run.main);
        let event = LogEvent::for_service("adopted", &self.settings.name).with("pid", run.main);
        cx.sink.emit(&event.with("count", members.len()));
        let main = run.main;
        self.begin_thrift(main, cx);
    }

    fn end_the_left(&mut self, ending: Ending, grace: Duration, cx: &mut Context<'_>) {
        let Some(run) = &self.run else { return };
        let members = run.tree.members();
        if !members.is_empty() {
            let event = LogEvent::for_service("orphans", self.name())
                .with("count", members.len())
                .with("processes", named(&members))
                .with("action", "ended");
            cx.sink.emit(&event);
        }
        self.end_run_within(ending, grace);
    }

    fn left_grace(&self) -> Duration {
        self.settings.stop.grace.min(LEFT_GRACE)
    }

    /// Nothing of the run is left.
    fn over(&mut self, exit: Option<Exit>, killed: u32, reaped: u32, cx: &mut Context<'_>) {
        let Some(run) = self.run.take() else { return };
        self.end_injected(cx);
        for check in self.ready.iter_mut().chain(&mut self.checks) {
            check.end();
        }
        let is_relieved = self.end_thrift(cx);
        if let Some(output) = &mut self.output {
            output.ended();
        }
        // The exit status of an adopted process is not known.
        let exit = exit.filter(|_| !run.is_adopted);
        let up = cx.now.saturating_duration_since(run.started);
        if !cx.once {
            let event = LogEvent::for_service("exit", self.name()).with("pid", run.tree.main());
            let event = told(event, exit)
                .with("uptime_s", seconds(up))
                .with("killed", killed)
                .with("reaped", reaped);
            cx.sink.emit(&event);
        }
        let exit = exit.unwrap_or(Exit::Code(1));
        match run.ending {
            Some(Ending::Stop) => {
                self.state = State::Stopped;
                self.outcome = Some(if cx.once { status(exit) } else { 0 });
            }
            Some(Ending::Down(code)) => {
                self.state = State::Failed;
                self.outcome = Some(code);
            }
            Some(Ending::Sick(reason)) => self.follow(exit, EndCause::Sick, reason, cx),
            Some(Ending::Renew(reason)) => self.follow(exit, EndCause::Asked, reason, cx),
            None | Some(Ending::Left) if is_relieved => {
                self.follow(exit, EndCause::Asked, self.reason(), cx)
            }
            None | Some(Ending::Left) => {
                let reason = match exit {
                    Exit::Code(_) => "exit",
                    Exit::Signal(_) => "signal",
                };
                self.follow(exit, EndCause::Itself, reason, cx);
            }
        }
    }

    /// Another start, now or later, or none.
    pub(super) fn follow(
        &mut self,
        exit: Exit,
        cause: EndCause,
        reason: &'static str,
        cx: &mut Context<'_>,
    ) {
        let policy = &self.settings.policy;
        match self.history.ended(policy, cx.now, exit, cause, chance()) {
            NextStep::Start { at } => {
                self.restarts += 1;
                *self.reasons.entry(reason.to_owned()).or_default() += 1;
                let event = LogEvent::for_service("restart", self.name()).with("reason", reason);
                let event = self.thrift.told_restart(told(event, Some(exit)));
                cx.sink.emit(&event.with("restarts", self.restarts));
                let delay = at.saturating_duration_since(cx.now);
                if delay.is_zero() {
                    return self.start(cx);
                }
                let event = LogEvent::for_service("backoff", self.name());
                cx.sink.emit(&event.with("delay_ms", millis(delay)));
                self.state = State::BackingOff;
                self.next_start = Some(at);
            }
            NextStep::Done => {
                self.state = State::Stopped;
                self.outcome = Some(0);
            }
            NextStep::Halt(halt) => self.stay_down(halt, exit, cx),
        }
    }

    fn stay_down(&mut self, halt: Halt, exit: Exit, cx: &mut Context<'_>) {
        self.state = State::Failed;
        // A service that exited with 0 repeatedly has no failing status of its own.
        self.outcome = Some(status(exit).max(1));
        if cx.once {
            return;
        }
        let event = match halt {
            Halt::CrashLoop { ends, within } => LogEvent::for_service("crash_loop", self.name())
                .with("ends", ends)
                .with("within_s", seconds(within)),
            _ => LogEvent::for_service("down", self.name()).with("reason", halt.to_string()),
        };
        let event = told(event, Some(exit));
        let text = match halt {
            Halt::CrashLoop { .. } => "it crashed too often and stays down",
            Halt::Never => "it failed and restarts are disabled",
            Halt::StopOn => "it exited with a status listed in --stop-on",
            Halt::NotRunnable => "the program cannot be run and is not retried",
        };
        let event = event.with("last_output", self.last_words());
        cx.sink.emit(&event.with("text", text));
    }
}

/// Adds an exit to an event.
fn told(event: LogEvent, exit: Option<Exit>) -> LogEvent {
    match exit {
        Some(Exit::Code(code)) => event.with("status", u32::from(code)),
        Some(Exit::Signal(signal)) => event.with("signal", signals::name_of(signal)),
        None => event.with("status", LogValue::Unknown),
    }
}

/// Processes by name and pid; the names are the kernel's.
fn named(pids: &[u32]) -> String {
    let name = |pid: &u32| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        format!("{}({pid})", comm.unwrap_or_default().trim_end())
    };
    pids.iter().map(name).collect::<Vec<_>>().join(" ")
}

pub(super) fn seconds(length: Duration) -> f64 {
    (length.as_secs_f64() * 1000.0).round() / 1000.0
}

pub(super) fn millis(length: Duration) -> f64 {
    (length.as_secs_f64() * 1e6).round() / 1000.0
}

/// A random number from 0 to 1.
fn chance() -> f64 {
    let random = random::bytes().map_or(0, u64::from_ne_bytes);
    #[expect(clippy::cast_precision_loss, reason = "a chance needs no 64 bits")]
    let share = (random >> 11) as f64 / (1_u64 << 53) as f64;
    share
}
