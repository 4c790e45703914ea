//! Parses and prints budget levels.

use std::fmt;
use std::time::Duration;

use fdguard_core::units;

/// A level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// A count.
    Count(u64),
    /// A percentage of the limit.
    Percent(f64),
    /// A rate per minute.
    PerMinute(f64),
    /// A duration.
    Time(Duration),
    /// A size in bytes.
    Bytes(u64),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(share) => write!(f, "{share}%"),
            Self::PerMinute(rate) => write!(f, "{rate}/min"),
            Self::Time(time) => f.write_str(&units::exact_duration(*time)),
            Self::Bytes(bytes) => f.write_str(&units::exact_size(*bytes)),
        }
    }
}

/// `30/min`, `2/s`, `100/h`; a number alone is per minute.
pub(super) fn per_minute(text: &str) -> Result<f64, String> {
    let (number, minutes) = match text.trim().split_once('/') {
        None => (text.trim(), Some(1.0)),
        Some((number, "s")) => (number, Some(1.0 / 60.0)),
        Some((number, "min" | "m")) => (number, Some(1.0)),
        Some((number, "h")) => (number, Some(60.0)),
        Some((number, _)) => (number, None),
    };
    // Signs, exponents and words are not numbers here.
    let is_plain = number.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    let value: Option<f64> = number.parse().ok().filter(|_| is_plain);
    value
        .filter(|value| value.is_finite())
        .zip(minutes)
        .map(|(value, minutes)| value / minutes)
        .ok_or_else(|| format!("{text:?} is not a rate: use 30/min, 2/s or 100/h"))
}

#[cfg(test)]
mod tests {
    use super::per_minute;

    #[test]
    fn rates_as_people_write_them() {
        let rate = |text| per_minute(text).unwrap();
        assert_eq!(
            [rate("30/min"), rate("2/s"), rate("120/h"), rate("5")],
            [30.0, 120.0, 2.0, 5.0]
        );
        for text in ["", "5/y", "x/s", "-1/s", "5s/s", "1/s/s", "inf", "1e3"] {
            assert!(
                per_minute(text).unwrap_err().contains("is not a rate"),
                "{text}"
            );
        }
    }
}
