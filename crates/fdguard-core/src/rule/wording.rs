//! The phrases that several rules share.

use fdguard_proc::link::is_nameless;

use crate::count::as_f64;
use crate::rising_group::RisingGroup;
use crate::units::plural;
use crate::{Class, Text};

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
    let bytes = target.as_bytes();
    is_nameless(bytes) || class.to_string().as_bytes() == bytes
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
        let others = plural(died, "other");
        let were = if died == 1 { "was" } else { "were" };
        format!(" and still open; {died} {others} of the same age {were} closed ({share:.0} %)")
    }
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn a_slow_leak_keeps_its_rate() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(rounded(60.04), 60.0) && near(rounded(0.000_694_4), 0.000_694));
        assert!(near(rounded(0.0), 0.0) && near(rounded(-12.345), -12.3));
    }
}
