//! The files of `run` and `check`: whatever is wrong with them is said on one line with its place.

use fdguard_core::located::{ConfigMistake, FileText};
use fdguard_core::proof::scenario::Scenario;
use fdguard_supervise::config::{Overrides, RunSettings, explain};

fn is_located(mistake: &ConfigMistake, text: &str) {
    assert!(!mistake.to_string().contains(char::is_control));
    let line = mistake.place.map_or(1, |place| place.line);
    assert!(line <= text.matches('\n').count() + 1, "{mistake}");
}

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Err(mistake) = FileText(text).table() {
        is_located(&mistake, text);
    }
    if let Err(mistake) = Scenario::parse(text) {
        is_located(&mistake, text);
    }
    match RunSettings::resolve(&Overrides::default(), Some(("a.toml", text))) {
        Ok(settings) => assert!(explain(&settings).contains("command")),
        Err(mistake) => is_located(&mistake, text),
    }
}
