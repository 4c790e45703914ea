//! Event fields of a breach.

use fdguard_core::Text;

use crate::budget::{Excess, Measure};
use crate::event::{LogEvent, LogValue};
use crate::meter::Leak;
use crate::remedy::DrainResult;

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
pub(super) fn suspected(event: LogEvent, leak: Option<&Leak>) -> LogEvent {
    let Some(leak) = leak else { return event };
    event
        .with("leak_target", leak.target.as_ref().map(shown))
        .with("leak_count", leak.count)
        .with("leak_per_minute", leak.per_minute.map(f64::round))
        .with("leak_proven", leak.proven)
}

pub(super) fn drained(how: &DrainResult) -> String {
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
