//! Recordings, plain and compressed: whatever they hold, they end and can be judged.

use std::io::Cursor;
use std::sync::LazyLock;

use fdguard_core::config::{Levels, Suppressions};
use fdguard_core::playbook::Playbook;
use fdguard_core::rule::RuleSettings;
use fdguard_diagnose::recording::{Replay, play};

// Once: reading the playbook takes longer than most recordings.
static SETTINGS: LazyLock<RuleSettings> = LazyLock::new(|| RuleSettings {
    levels: Levels::default(),
    expectations: Vec::new(),
    suppressions: Suppressions::default(),
    playbook: Playbook::embedded(),
    today: jiff::civil::date(2026, 1, 1),
});

pub(crate) fn run(bytes: &[u8]) {
    let source = Box::new(Cursor::new(bytes.to_vec()));
    let Ok((watch, _)) = Replay::new("bytes", source).map(play) else {
        return;
    };
    assert!(watch.ended().is_some());
    if let Some(diagnosis) = watch.diagnosis(&SETTINGS) {
        serde_json::to_vec(&diagnosis).expect("a diagnosis can be written");
    }
}
