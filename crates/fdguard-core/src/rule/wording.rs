//! The phrases that several rules share.

use crate::count::as_f64;
use crate::culprit::Culprit;

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
    let (value, unit) = match per_second {
        r if r >= 1.0 => (r, "a second"),
        r if r * 60.0 >= 1.0 => (r * 60.0, "a minute"),
        r if r * 3600.0 >= 1.0 => (r * 3600.0, "an hour"),
        r => (r * 86_400.0, "a day"),
    };
    if value < 10.0 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

/// What it is, for a sentence: `regular descriptors on /srv/*.log`.
#[must_use]
pub(super) fn subject(culprit: &Culprit) -> String {
    match (&culprit.class, &culprit.target) {
        (Some(class), Some(target)) if target.to_lossy() != class.to_string() => {
            format!("{class} descriptors on {}", target.to_lossy())
        }
        (Some(class), _) => format!("{class} descriptors"),
        (None, _) => "descriptors (of what class could not be seen)".to_owned(),
    }
}

/// How many of those that reached that age were closed.
#[must_use]
pub(super) fn closed(culprit: &Culprit) -> String {
    let (rise, died) = (culprit.judgement.rise, culprit.judgement.died);
    if culprit.class.is_none() {
        "what was closed in between could not be seen".to_owned()
    } else if died == 0 {
        "none that grew as old was closed".to_owned()
    } else {
        let share = 100.0 * as_f64(died) / as_f64(died + rise);
        format!("{died} others that grew as old were closed ({share:.0} %)")
    }
}
