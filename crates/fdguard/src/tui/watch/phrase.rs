//! Times in few columns.

use fdguard_core::units::{rounded, time_unit};

/// When something happens, and the range: `in 3.2 min (2.9–3.8)`. Without a latest time it may
/// never happen.
pub(super) fn countdown(eta: f64, soonest: Option<f64>, latest: Option<f64>) -> String {
    if eta <= 0.0 {
        return "reached".to_owned();
    }
    let (length, unit) = time_unit(eta);
    let amount = |seconds: f64| rounded(seconds / length);
    let range = match (soonest.map(amount), latest.map(amount)) {
        // Omit a range of one value.
        (Some(soonest), Some(latest)) if soonest == latest => String::new(),
        (Some(soonest), Some(latest)) => format!(" ({soonest}–{latest})"),
        (Some(soonest), None) => format!(" ({soonest} or later)"),
        (None, _) => String::new(),
    };
    format!("in {} {unit}{range}", amount(eta))
}

/// `every 1 s`, `every 0.5 s`, `every 5 min`.
pub(super) fn every(seconds: f64) -> String {
    let (length, unit) = time_unit(seconds);
    format!("every {} {unit}", (seconds / length * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::{countdown, every};

    #[test]
    fn a_countdown_has_its_range_in_the_same_unit() {
        let said = countdown(192.0, Some(174.0), Some(228.0));
        assert_eq!(said, "in 3.2 min (2.9–3.8)");
        assert_eq!(countdown(40.0, Some(30.0), None), "in 40 s (30 or later)");
        let exact = countdown(90_000.0, Some(90_000.0), Some(90_000.0));
        assert_eq!(exact, "in 25 h");
        assert_eq!(countdown(0.0, Some(0.0), None), "reached");
    }

    #[test]
    fn intervals_choose_their_unit() {
        assert_eq!(
            [1.0, 0.5, 300.0].map(every),
            ["every 1 s", "every 0.5 s", "every 5 min"]
        );
    }
}
