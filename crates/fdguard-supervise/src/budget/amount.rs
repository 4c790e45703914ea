//! Parses and prints budget levels.

use std::fmt;
use std::time::Duration;

pub use fdguard_core::duration::duration;

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
            Self::Time(time) => f.write_str(&written_time(*time)),
            Self::Bytes(bytes) => f.write_str(&written_size(*bytes)),
        }
    }
}

/// Powers of ten and powers of two have different names.
const UNITS_OF_SIZE: &[(&str, f64)] = &[
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("K", 1024.0),
    ("MiB", 1_048_576.0),
    ("M", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("G", 1_073_741_824.0),
];

/// A tenth of an exabyte: more than any machine has, and exact as a floating-point number.
const LARGEST: f64 = 1e17;

/// `512MiB`, `1GiB`, `64M`, `1.5G`, `500MB`; a unit is required.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size: use 512MiB, 1GiB, 64M or 500MB");
    let (value, name, behind) = number_and_unit(text.trim()).ok_or_else(wrong)?;
    let unit = UNITS_OF_SIZE.iter().find(|(unit, _)| *unit == name);
    let bytes = (value * unit.ok_or_else(wrong)?.1).round();
    if !behind.is_empty() || bytes > LARGEST {
        return Err(wrong());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole, not negative and below 2^63"
    )]
    Ok(bytes as u64)
}

/// `30/min`, `2/s`, `100/h`; a number alone is per minute.
pub(super) fn per_minute(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is not a rate: use 30/min, 2/s or 100/h");
    let (number, minutes) = match text.trim().split_once('/') {
        None => (text.trim(), 1.0),
        Some((number, "s")) => (number, 1.0 / 60.0),
        Some((number, "min" | "m")) => (number, 1.0),
        Some((number, "h")) => (number, 60.0),
        Some(_) => return Err(wrong()),
    };
    let (value, name, behind) = number_and_unit(number).ok_or_else(wrong)?;
    let is_plain = name.is_empty() && behind.is_empty() && value <= LARGEST;
    if is_plain {
        Ok(value / minutes)
    } else {
        Err(wrong())
    }
}

/// The leading number, the letters after it, and the rest. Signs, exponents and words are not
/// numbers here.
fn number_and_unit(text: &str) -> Option<(f64, &str, &str)> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let value: f64 = text[..digits].parse().ok()?;
    let rest = &text[digits..];
    let letters = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    Some((value, &rest[..letters], &rest[letters..]))
}

/// The shortest exact form.
fn written_time(time: Duration) -> String {
    let milliseconds = time.as_millis();
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1000, "s"),
    ];
    let exact = units
        .iter()
        .find(|(unit, _)| milliseconds >= *unit && milliseconds.is_multiple_of(*unit));
    match exact {
        Some((unit, name)) => format!("{}{name}", milliseconds / unit),
        None => format!("{milliseconds}ms"),
    }
}

fn written_size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let exact = units
        .iter()
        .find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    match exact {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Amount, duration, per_minute, size};

    #[test]
    fn times_sizes_and_rates_as_people_write_them() {
        let time = |text| duration(text).unwrap().as_millis();
        assert_eq!(
            [time("30s"), time("250ms"), time("1h30m")],
            [30_000, 250, 5_400_000]
        );
        assert_eq!(
            [time("7"), time("0.5s"), time("2d")],
            [7000, 500, 172_800_000]
        );
        let bytes = |text| size(text).unwrap();
        assert_eq!([bytes("512MiB"), bytes("1GiB")], [512 << 20, 1 << 30]);
        assert_eq!(
            [bytes("64M"), bytes("500MB"), bytes("1.5K")],
            [64 << 20, 500_000_000, 1536]
        );
        let rate = |text| per_minute(text).unwrap();
        assert_eq!(
            [rate("30/min"), rate("2/s"), rate("120/h"), rate("5")],
            [30.0, 120.0, 2.0, 5.0]
        );
    }

    #[test]
    fn what_is_none_is_told_in_one_line() {
        for text in ["", "s", "5x", "-5s", "1e9s", "5 s", "1s2", "inf", "36501d"] {
            assert!(!duration(text).unwrap_err().contains('\n'), "{text}");
        }
        for text in [
            "",
            "512",
            "-1MiB",
            "1TiBs",
            "MiB",
            "1MiB2",
            "999999999G",
            "1e3K",
        ] {
            assert!(size(text).unwrap_err().contains("is not a size"), "{text}");
        }
        for text in ["", "5/y", "x/s", "-1/s", "5s/s", "1/s/s"] {
            assert!(
                per_minute(text).unwrap_err().contains("is not a rate"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_written_amount_reads_back() {
        for (text, time) in [("30m", 1800), ("90s", 90), ("2h", 7200), ("1d", 86_400)] {
            let time = Duration::from_secs(time);
            assert_eq!(Amount::Time(time).to_string(), text);
            assert_eq!(duration(text).unwrap(), time);
        }
        for bytes in [512 << 20, 3 << 30, 1000, 1536] {
            let text = Amount::Bytes(bytes).to_string();
            assert_eq!(size(&text).unwrap(), bytes, "{text}");
        }
    }
}
