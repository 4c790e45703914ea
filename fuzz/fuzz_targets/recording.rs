#![no_main]
//! Recordings, plain and compressed: whatever they hold, they end and can be judged.

use fdguard_core::config::{Ledger, Levels};
use fdguard_core::playbook::Playbook;
use fdguard_core::rule::Settings;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok((watch, _)) = fdguard::recording::replay_bytes(bytes.to_vec()) else {
        return;
    };
    assert!(watch.ended().is_some());
    let settings = Settings {
        levels: Levels::default(),
        expectations: Vec::new(),
        ledger: Ledger::default(),
        playbook: Playbook::embedded(),
        today: jiff::civil::date(2026, 1, 1),
    };
    if let Some(diagnosis) = watch.diagnosis(&settings) {
        serde_json::to_vec(&diagnosis).expect("a diagnosis can be written");
    }
});
