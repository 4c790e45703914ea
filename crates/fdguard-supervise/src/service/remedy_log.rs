//! The events of a remedy.

use fdguard_core::{Text, command_line};

use super::Context;
use super::events::seconds;
use crate::budget::{Excess, Measure};
use crate::config::ServiceConfig;
use crate::event::{LogEvent, LogValue};
use crate::lifecycle::{Breach, DrainResult, RemedyNotice};
use crate::meter::Leak;
use crate::report::{self, RemedyReport};

/// What is known about the breach in progress.
#[derive(Debug, Default)]
pub(super) struct RemedyLog {
    /// The breach, and what leaked when it began.
    breach: Option<(Breach, Vec<Leak>)>,
    /// The line that opened it, if an injected tracer knows.
    line: Option<String>,
    /// The path of its evidence.
    evidence: Option<String>,
}

impl RemedyLog {
    /// The event of a notice. `leaks` is what leaks now, `main` the running process.
    pub(super) fn event(
        &mut self,
        notice: RemedyNotice,
        settings: &ServiceConfig,
        leaks: Vec<Leak>,
        main: Option<u32>,
        cx: &mut Context<'_>,
    ) -> LogEvent {
        self.find_line(&notice, settings, main, cx);
        let service = &settings.name;
        match notice {
            RemedyNotice::Begun(breach) => {
                let event = self.breached(&breach, &leaks, service);
                self.evidence = None;
                self.breach = Some((breach, leaks));
                event
            }
            RemedyNotice::Waits(breach) => self
                .breached(&breach, &[], service)
                .with("waits", "another service is being restarted"),
            RemedyNotice::Evidence(Ok(place)) => {
                self.evidence = Some(place.clone());
                LogEvent::for_service("evidence", service).with("place", place)
            }
            RemedyNotice::Evidence(Err(why)) => {
                LogEvent::for_service("evidence", service).with("failed", why)
            }
            RemedyNotice::Drained(how, took) => LogEvent::for_service("drained", service)
                .with("how", drained(&how))
                .with("took_s", seconds(took)),
            RemedyNotice::Proven(proof) => {
                let text = self.finish(&proof.breach, settings, |report| report.proven(&proof));
                LogEvent::for_service("proven", service)
                    .with("pid", proof.now.pid)
                    .with("before", proof.before.map(|before| before.pid))
                    .with("took_s", seconds(proof.took))
                    .with("down_s", seconds(proof.down))
                    .with("leak_line", self.line.take())
                    .with("text", text)
            }
            RemedyNotice::Unproven(breach, why) => {
                let text = self.finish(&breach, settings, |report| report.unproven(&why));
                LogEvent::for_service("unproven", service)
                    .with("leak_line", self.line.take())
                    .with("text", text)
            }
            RemedyNotice::Again(again) => {
                let report = |report: &RemedyReport<'_>| report.again(&again);
                let text = self.report(&again.breach, &leaks, settings, report);
                self.breached(&again.breach, &leaks, service)
                    .with("again", true)
                    .with("text", text)
            }
        }
    }

    /// Adds what a restart is about.
    pub(super) fn explain(&self, event: LogEvent) -> LogEvent {
        match &self.breach {
            Some((breach, leaks)) => measured(
                event,
                &breach.what,
                &breach.passed,
                class(&breach.what, leaks.first()),
            ),
            None => event,
        }
    }

    fn breached(&self, breach: &Breach, leaks: &[Leak], service: &str) -> LogEvent {
        let class = class(&breach.what, leaks.first());
        let event =
            LogEvent::for_service("breach", service).with("reason", report::reason(&breach.what));
        let event = measured(event, &breach.what, &breach.passed, class);
        suspected(event, leaks.first()).with("leak_line", self.line.clone())
    }

    /// The remedy is over: reports it with what leaked before.
    fn finish(
        &mut self,
        breach: &Breach,
        settings: &ServiceConfig,
        text: impl FnOnce(&RemedyReport<'_>) -> String,
    ) -> String {
        let leaks = self.breach.take().map(|(_, leaks)| leaks);
        self.report(breach, &leaks.unwrap_or_default(), settings, text)
    }

    fn report(
        &self,
        breach: &Breach,
        leaks: &[Leak],
        settings: &ServiceConfig,
        text: impl FnOnce(&RemedyReport<'_>) -> String,
    ) -> String {
        let words = settings.command.iter();
        let command = command_line::quoted(words.map(|word| word.as_encoded_bytes()));
        text(&RemedyReport {
            service: &settings.name,
            breach,
            leaks,
            line: self.line.as_deref(),
            evidence: self.evidence.as_deref(),
            command: &command,
        })
    }

    /// The site that opened most, if an injected tracer knows: looked up when a breach is first
    /// reported, and once more after the steps that take long, because the lines of a large program
    /// take longer than a moment.
    fn find_line(
        &mut self,
        notice: &RemedyNotice,
        settings: &ServiceConfig,
        main: Option<u32>,
        cx: &mut Context<'_>,
    ) {
        let breach = match notice {
            RemedyNotice::Waits(_) => {
                self.line = None;
                return;
            }
            RemedyNotice::Begun(breach) => Some(breach),
            RemedyNotice::Again(again) => Some(&again.breach),
            RemedyNotice::Evidence(_) | RemedyNotice::Drained(..) if self.line.is_none() => {
                self.breach.as_ref().map(|(breach, _)| breach)
            }
            _ => return,
        };
        // The process that is being stopped: later there is another one.
        let pid = breach.and_then(|breach| breach.passed.pid).or(main);
        let injector = cx.injector.as_mut().zip(pid);
        self.line = injector.and_then(|(injector, pid)| injector.line(&settings.name, pid));
    }
}

/// The class of a budget, or else of what leaks.
pub(super) fn class(what: &Measure, leak: Option<&Leak>) -> LogValue {
    let leaking = || {
        leak.and_then(|leak| leak.class.as_ref())
            .map(ToString::to_string)
    };
    match what {
        Measure::Class(class) => LogValue::Text(class.to_string()),
        Measure::Memory | Measure::Zombies | Measure::Children => LogValue::Unknown,
        _ => leaking().into(),
    }
}

pub(super) fn shown(text: &Text) -> String {
    String::from_utf8_lossy(text.as_bytes()).into_owned()
}

/// Adds what leaks, or may leak.
fn suspected(event: LogEvent, leak: Option<&Leak>) -> LogEvent {
    let Some(leak) = leak else { return event };
    event
        .with("leak_target", leak.target.as_ref().map(shown))
        .with("leak_count", leak.count)
        .with("leak_per_minute", leak.per_minute.map(f64::round))
        .with("leak_proven", leak.proven)
}

fn drained(how: &DrainResult) -> String {
    match how {
        DrainResult::ConnectionsGone => "connections_gone".to_owned(),
        DrainResult::HookDone => "hook_done".to_owned(),
        DrainResult::HookFailed(why) => format!("hook failed: {why}"),
        DrainResult::Ended => "ended".to_owned(),
        DrainResult::TimeUp => "time_up".to_owned(),
        DrainResult::None => "none".to_owned(),
    }
}

/// Adds a measurement to an event; whole numbers as such.
pub(super) fn measured(
    event: LogEvent,
    what: &Measure,
    passed: &Excess,
    class: LogValue,
) -> LogEvent {
    event
        .with("budget", what.to_string())
        .with("count", whole(passed.value))
        .with("level", whole(passed.level))
        .with("wall", passed.wall.map(whole))
        .with("class", class)
        .with("pid", passed.pid)
}

fn whole(value: f64) -> LogValue {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        #[expect(clippy::cast_possible_truncation, reason = "whole and small")]
        return LogValue::Number(i128::from(value as i64));
    }
    LogValue::Fraction((value * 100.0).round() / 100.0)
}

#[cfg(test)]
mod tests {
    use fdguard_core::{Class, Text};

    use super::RemedyLog;
    use crate::budget::{Excess, Measure};
    use crate::lifecycle::Breach;
    use crate::meter::Leak;

    #[test]
    fn a_breach_is_logged_with_its_figures_and_without_what_is_unknown() {
        let breach = Breach {
            what: Measure::Fds,
            passed: Excess {
                pid: Some(4711),
                value: 912.0,
                level: 900.0,
                wall: Some(1000.0),
                first: None,
            },
            left: None,
        };
        let leak = Leak {
            pid: 4711,
            class: Some(Class::SqliteDb),
            target: Some(Text::from("/srv/agent.db")),
            count: 640,
            per_minute: Some(90.0),
            proven: true,
        };
        let log = RemedyLog::default();
        let line = log.breached(&breach, &[leak], "web").line();
        for field in [
            "reason=fd_budget budget=fds count=912 level=900 wall=1000 class=sqlite-db pid=4711",
            "leak_count=640",
            "leak_per_minute=90",
        ] {
            assert!(line.contains(field), "{line}");
        }
        let bare = log.breached(&breach, &[], "web").line();
        assert!(!bare.contains("leak_count"), "{bare}");
    }
}
