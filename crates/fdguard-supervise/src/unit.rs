//! Times and sizes as people write them: `250ms`, `30s`, `5m`; `512KiB`, `10MiB`.

use std::time::Duration;

pub use fdguard_core::duration::duration;

const SIZES: [(&str, u64); 8] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

/// This many seconds; `None` if negative, not a number, or longer than a clock can represent.
#[must_use]
pub fn seconds_of(seconds: f64) -> Option<Duration> {
    // A hundred years: clock arithmetic still works with it.
    const LONGEST: f64 = 3.2e9;
    (seconds <= LONGEST)
        .then(|| Duration::try_from_secs_f64(seconds).ok())
        .flatten()
}

/// A time in the form that [`duration`] reads.
#[must_use]
pub fn shown(time: Duration) -> String {
    if time.subsec_nanos() == 0 {
        format!("{}s", time.as_secs())
    } else if time.as_secs() == 0 {
        format!("{}ms", time.as_millis())
    } else {
        format!("{:.1}s", time.as_secs_f64())
    }
}

/// `10MiB`, `64KiB`, `1GB`; a number alone is bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let scale = match unit {
        "" => Some(1),
        unit => find(&SIZES, unit),
    };
    let scale = scale.ok_or_else(|| format!("{text:?} is not a size: use 64KiB, 10MiB or 1GiB"))?;
    let number = number
        .parse::<u64>()
        .map_err(|_why| format!("{text:?} is not a size: it must start with a whole number"))?;
    number
        .checked_mul(scale)
        .ok_or_else(|| format!("{text:?} is too large"))
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

fn find<T: Copy>(table: &[(&str, T)], unit: &str) -> Option<T> {
    let found = table.iter().find(|(name, _)| *name == unit);
    found.map(|(_, scale)| *scale)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{duration, size};

    #[test]
    fn times_have_a_unit_or_are_seconds() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("7"), Ok(Duration::from_secs(7)));
        for bad in [
            "",
            "s",
            "-1s",
            "5 weeks",
            "1e9s",
            "99999999999999d",
            "1..2s",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_a_unit_or_are_bytes() {
        assert_eq!(size("10MiB"), Ok(10 << 20));
        assert_eq!(size("64 KiB"), Ok(64 << 10));
        assert_eq!(size("12"), Ok(12));
        for bad in ["", "MiB", "1.5MiB", "99999999999GiB", "3 bananas"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
