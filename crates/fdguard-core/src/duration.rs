//! Durations as people write them, on a command line or in a file.

use std::time::Duration;

/// Units; of names with a common beginning, the longest is first.
const UNITS: &[(&str, f64)] = &[
    ("ms", 0.001),
    ("s", 1.0),
    ("min", 60.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
];

/// A hundred years: adding that to a clock cannot overflow.
const LONGEST: f64 = 36_500.0 * 86_400.0;

/// `20s`, `500ms`, `5m`, `1h30m`, `2d`, `0.5s`; a number alone is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 20s, 500ms, 5m, 1h30m or 2d");
    let mut rest = text.trim();
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let value: f64 = rest[..digits].parse().ok().ok_or_else(wrong)?;
        rest = &rest[digits..];
        let letters = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let unit = if digits == text.trim().len() {
            1.0
        } else {
            let name = &rest[..letters];
            let known = UNITS.iter().find(|(unit, _)| *unit == name);
            known.ok_or_else(wrong)?.1
        };
        rest = &rest[letters..];
        seconds += value * unit;
    }
    if seconds > LONGEST {
        return Err(format!("{text:?} is too long: the maximum is 36500d"));
    }
    Duration::try_from_secs_f64(seconds).ok().ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::duration;

    #[test]
    fn lengths_as_people_write_them() {
        for (text, milliseconds) in [
            ("20s", 20_000),
            ("250ms", 250),
            ("5m", 300_000),
            ("5min", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("0.5s", 500),
            ("7", 7_000),
            ("0", 0),
        ] {
            assert_eq!(
                duration(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_none_is_told_in_one_line() {
        for text in ["", "s", "5x", "-5s", "1.2.3s", "1e400", "5 s", "∞", "1s2"] {
            let error = duration(text).unwrap_err();
            assert!(
                error.contains("is not a duration") && !error.contains('\n'),
                "{text}: {error}"
            );
        }
        let endless = "9".repeat(400);
        for text in ["36501d", "200000000000000d", &endless] {
            assert!(duration(text).unwrap_err().contains("too long"), "{text}");
        }
    }
}
