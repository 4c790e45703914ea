//! The user's `fdguard.toml`: whatever is wrong with it is said on one line.

use fdguard_core::config::{Config, Expectation};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Config::parse(text) {
        Ok(config) => assert!(config.levels.warning <= config.levels.critical),
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
    if let Ok(expectation) = text.parse::<Expectation>() {
        assert!(expectation.limit() > 0 && !expectation.breached_by(expectation.limit()));
    }
}
