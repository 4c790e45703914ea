//! Times and rates in few columns.

/// A time as a clock shows it: `0:07`, `12:30`, `3:05:00`, `2d 3:05:00`.
pub(super) fn clock(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a float saturates, and nobody watches for so long"
    )]
    let seconds = seconds.round() as u64;
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{seconds:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => format!("{days}d {hours}:{minutes:02}:{seconds:02}"),
    }
}

/// When something happens, and the range: `in 3.2 min (2.9–3.8)`. Without a latest time it may
/// never happen.
pub(super) fn countdown(eta: f64, soonest: Option<f64>, latest: Option<f64>) -> String {
    if eta <= 0.0 {
        return "reached".to_owned();
    }
    let (length, unit) = unit(eta);
    let amount = |seconds: f64| amount(seconds / length);
    let range = match (soonest.map(amount), latest.map(amount)) {
        // Omit a range of one value.
        (Some(soonest), Some(latest)) if soonest == latest => String::new(),
        (Some(soonest), Some(latest)) => format!(" ({soonest}–{latest})"),
        (Some(soonest), None) => format!(" ({soonest} or later)"),
        (None, _) => String::new(),
    };
    format!("in {} {unit}{range}", amount(eta))
}

/// The unit in which a time is shown, and its length in seconds.
fn unit(seconds: f64) -> (f64, &'static str) {
    match seconds {
        s if s < 120.0 => (1.0, "s"),
        s if s < 7200.0 => (60.0, "min"),
        s if s < 172_800.0 => (3600.0, "h"),
        _ => (86_400.0, "days"),
    }
}

fn amount(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// `2.5/s`, `40/min`, `3.0/h`, `1.2/day`.
pub(super) fn rate(per_minute: f64) -> String {
    let (value, unit) = match per_minute.abs() {
        r if r >= 60.0 => (per_minute / 60.0, "s"),
        r if r >= 1.0 => (per_minute, "min"),
        r if r * 60.0 >= 1.0 => (per_minute * 60.0, "h"),
        _ => (per_minute * 1440.0, "day"),
    };
    format!("{}/{unit}", amount(value))
}

/// `every 1 s`, `every 0.5 s`, `every 5 min`.
pub(super) fn every(seconds: f64) -> String {
    let (length, unit) = unit(seconds);
    format!("every {} {unit}", (seconds / length * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::{clock, countdown, every, rate};

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
    fn times_and_rates_choose_their_unit() {
        assert_eq!(
            [7.4, 750.0, 11_100.0, 183_900.0].map(clock),
            ["0:07", "12:30", "3:05:00", "2d 3:05:00"]
        );
        assert_eq!(
            [150.0, 40.0, 0.05, 0.001].map(rate),
            ["2.5/s", "40/min", "3.0/h", "1.4/day"]
        );
        assert_eq!(
            [1.0, 0.5, 300.0].map(every),
            ["every 1 s", "every 0.5 s", "every 5 min"]
        );
    }
}
