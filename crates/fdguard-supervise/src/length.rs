//! Lengths of time as people write them in a file or a flag.

use std::time::Duration;

/// Units; a number alone is seconds.
const UNITS: &[(&str, f64)] = &[
    ("", 1.0),
    ("ms", 0.001),
    ("s", 1.0),
    ("min", 60.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
];

/// A hundred years: clocks can be added to that without a thought.
const LONGEST: f64 = 36_500.0 * 86_400.0;

/// `30s`, `250ms`, `5m`, `0.5s`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no length of time: 30s, 250ms, 5m");
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().ok().ok_or_else(wrong)?;
    let unit = UNITS.iter().find(|(name, _)| *name == unit);
    let seconds = number * unit.ok_or_else(wrong)?.1;
    if seconds > LONGEST {
        return Err(format!("{text:?} is too long: 36500d at most"));
    }
    Duration::try_from_secs_f64(seconds).ok().ok_or_else(wrong)
}

/// The same, and not nothing.
pub(crate) fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("must be more than nothing".to_owned()),
        length => Ok(length),
    }
}

/// As it would be written: `1.500s`, `90ms`.
pub(crate) fn show(length: Duration) -> String {
    if length < Duration::from_secs(1) {
        return format!("{}ms", length.as_millis());
    }
    format!("{:.3}s", length.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{parse, parse_positive, show};

    #[test]
    fn lengths_as_people_write_them() {
        for (text, milliseconds) in [
            ("30s", 30_000),
            ("250ms", 250),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("0.5s", 500),
            ("7", 7_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)));
        }
        for wrong in ["", "s", "5x", "-5s", "1.2.3s", "5 s", "99999999d"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse_positive("0ms").is_err());
    }

    #[test]
    fn lengths_are_shown_with_their_unit() {
        assert_eq!(show(Duration::from_millis(90)), "90ms");
        assert_eq!(show(Duration::from_millis(1_500)), "1.500s");
    }
}
