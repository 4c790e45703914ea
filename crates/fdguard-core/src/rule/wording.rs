//! The phrases that several rules share.

use crate::count::as_f64;
use crate::rising_group::RisingGroup;
use crate::{Class, Text};

/// `40 s`, `3 min`, `5 h`, `12 days`.
#[must_use]
pub fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 120.0 => (s, "s"),
        s if s < 7200.0 => (s / 60.0, "min"),
        s if s < 172_800.0 => (s / 3600.0, "h"),
        s => (s / 86_400.0, "days"),
    };
    if value < 10.0 && unit != "s" {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

/// `2.5 a second`, `40 a minute`, `3 an hour`, `1.2 a day`.
#[must_use]
pub fn rate(per_second: f64) -> String {
    let (value, words, _) = scaled(per_second);
    format!("{value} {words}")
}

/// `2.5/s`, `40/min`, `3.0/h`, `1.2/day`: the same in parentheses.
#[must_use]
pub fn short_rate(per_second: f64) -> String {
    let (value, _, symbol) = scaled(per_second);
    format!("{value}/{symbol}")
}

/// A rate in the unit of its size: the value, the unit in words and its symbol.
fn scaled(per_second: f64) -> (String, &'static str, &'static str) {
    let (value, words, symbol) = match per_second {
        r if r >= 1.0 => (r, "a second", "s"),
        r if r * 60.0 >= 1.0 => (r * 60.0, "a minute", "min"),
        r if r * 3600.0 >= 1.0 => (r * 3600.0, "an hour", "h"),
        r => (r * 86_400.0, "a day", "day"),
    };
    let digits = usize::from(value < 10.0);
    (format!("{value:.digits$}"), words, symbol)
}

/// To three digits, however small: a leak of one a day must not round to zero.
#[must_use]
pub(crate) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = value.abs().log10().floor().clamp(-100.0, 100.0);
    let scale = 10_f64.powf(2.0 - digits);
    (value * scale).round() / scale
}

/// The subject of a sentence: `regular descriptors on /srv/*.log`.
#[must_use]
pub(super) fn subject(culprit: &RisingGroup) -> String {
    match (&culprit.class, &culprit.target) {
        (Some(class), Some(target)) if !is_class(target, class) => {
            format!("{class} descriptors on {}", target.to_lossy())
        }
        (Some(class), _) => format!("{class} descriptors"),
        (None, _) => "descriptors (class unknown)".to_owned(),
    }
}

/// Whether a target adds nothing to its class: `pipe:[*]`, `inotify`.
fn is_class(target: &Text, class: &Class) -> bool {
    let kernel = ["pipe:", "anon_inode:", "socket:"];
    let bytes = target.as_bytes();
    kernel.iter().any(|kind| bytes.starts_with(kind.as_bytes()))
        || class.to_string().as_bytes() == bytes
}

/// How many of the descriptors that reached the same age were closed.
#[must_use]
pub(super) fn closed(culprit: &RisingGroup) -> String {
    let (rise, died) = (culprit.judgement.rise, culprit.judgement.died);
    if culprit.class.is_none() {
        "; closes in between could not be observed".to_owned()
    } else if died == 0 {
        ", none closed".to_owned()
    } else {
        let share = 100.0 * as_f64(died) / as_f64(died + rise);
        let others = if died == 1 { "other" } else { "others" };
        let were = if died == 1 { "was" } else { "were" };
        format!(" and still open; {died} {others} of the same age {were} closed ({share:.0} %)")
    }
}

#[cfg(test)]
mod tests {
    use super::{duration, rate, rounded, short_rate};

    #[test]
    fn a_slow_leak_keeps_its_rate() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(rounded(60.04), 60.0) && near(rounded(0.000_694_4), 0.000_694));
        assert!(near(rounded(0.0), 0.0) && near(rounded(-12.345), -12.3));
        assert_eq!(rate(1.0 / 86_400.0), "1.0 a day");
        assert_eq!(rate(2.5), "2.5 a second");
        assert_eq!(rate(0.5), "30 a minute");
        assert_eq!(
            [2.5, 0.5, 1.0 / 3600.0].map(short_rate),
            ["2.5/s", "30/min", "1.0/h"]
        );
    }

    #[test]
    fn a_duration_has_the_unit_of_its_size() {
        let said = [1.0, 119.0, 180.0, 7200.0, 172_800.0].map(duration);
        assert_eq!(said, ["1 s", "119 s", "3.0 min", "2.0 h", "2.0 days"]);
    }
}
