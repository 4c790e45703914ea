//! The baseline that an earlier `check` saved: what is read can be written.

use fdguard_diagnose::check::CheckBaseline;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Some(baseline) = CheckBaseline::parse(text) {
        let written = serde_json::to_string(&baseline).expect("a baseline can be written");
        assert!(CheckBaseline::parse(&written).is_some());
    }
}
