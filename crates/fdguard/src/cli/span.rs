//! Lengths of time as people type them: `500ms`, `20s`, `5min`, `2h`.

use std::time::Duration;

/// Units, the longer names first.
const UNITS: &[(&str, f64)] = &[
    ("ms", 0.001),
    ("min", 60.0),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
];
/// Longer than this nobody waits.
const LONGEST: f64 = 30.0 * 86_400.0;

/// A length of time; a bare number is seconds.
pub(super) fn parse_span(text: &str) -> Result<Duration, String> {
    let wrong = || "a length of time is a number and a unit: 500ms, 20s, 5min, 2h".to_owned();
    let unit = UNITS
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let (number, seconds) = unit.unwrap_or((text, 1.0));
    let number: f64 = number.trim_end().parse().map_err(|_not_a_number| wrong())?;
    let length = number * seconds;
    if !length.is_finite() || length < 0.0 {
        return Err(wrong());
    }
    if length > LONGEST {
        return Err("at most 30d".to_owned());
    }
    Ok(Duration::from_secs_f64(length))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse_span;

    #[test]
    fn numbers_with_units_are_lengths_of_time() {
        let millis = |text: &str| parse_span(text).map(|span| span.as_millis());
        assert_eq!(millis("500ms"), Ok(500));
        assert_eq!(millis("20s"), Ok(20_000));
        assert_eq!(millis("1.5"), Ok(1500));
        assert_eq!(millis("5min"), Ok(300_000));
        assert_eq!(millis("5m"), Ok(300_000));
        assert_eq!(parse_span("2 h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "s", "-1s", "soon", "1e400", "NaN", "inf", "5y", "40d"] {
            assert!(parse_span(wrong).is_err(), "{wrong}");
        }
    }
}
