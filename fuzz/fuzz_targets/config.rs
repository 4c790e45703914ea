#![no_main]
//! The user's `fdguard.toml`: whatever is wrong with it is said on one line.

use fdguard_core::config::{Config, Expectation};

libfuzzer_sys::fuzz_target!(|text: &str| {
    match Config::parse(text) {
        Ok(config) => assert!(config.levels.warning <= config.levels.critical),
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
    if let Ok(expectation) = text.parse::<Expectation>() {
        assert!(expectation.limit() > 0 && !expectation.breached_by(expectation.limit()));
    }
});
