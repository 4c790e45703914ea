//! Durations as people write them.

use std::time::Duration;

/// `20s`, `500ms`, `5m`, `1h30m`, `2d`, `0.5s`; a number alone is seconds.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    fdguard_core::duration::duration(text)
}

/// Parses a duration that must not be zero.
pub(super) fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("must be greater than zero".to_owned()),
        length => Ok(length),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_positive;

    #[test]
    fn nothing_is_no_length_where_one_is_needed() {
        assert!(parse_positive("0ms").is_err());
        assert!(parse_positive("1ms").is_ok());
    }
}
