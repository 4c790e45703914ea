#![no_main]
//! Sizes and times: what is read is printed and read back, what is wrong is said on one line.

use fdguard_core::units::{exact_duration, exact_size, parse_duration, parse_size};

libfuzzer_sys::fuzz_target!(|text: &str| {
    match parse_duration(text) {
        Ok(length) => assert_eq!(parse_duration(&exact_duration(length)), Ok(length)),
        Err(error) => assert!(!error.contains(char::is_control), "{error}"),
    }
    match parse_size(text) {
        Ok(bytes) => assert_eq!(parse_size(&exact_size(bytes)), Ok(bytes)),
        Err(error) => assert!(!error.contains(char::is_control), "{error}"),
    }
});
