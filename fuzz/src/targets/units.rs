//! Sizes and times: what is read is printed and read back, what is wrong is said on one line.

use fdguard_core::units::{exact_duration, exact_size, parse_duration, parse_size};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match parse_duration(text) {
        Ok(length) => assert_eq!(parse_duration(&exact_duration(length)), Ok(length)),
        Err(error) => assert!(!error.contains(char::is_control), "{error}"),
    }
    match parse_size(text) {
        Ok(bytes) => assert_eq!(parse_size(&exact_size(bytes)), Ok(bytes)),
        Err(error) => assert!(!error.contains(char::is_control), "{error}"),
    }
}
