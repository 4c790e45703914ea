//! Go programs: made by anybody. Every address has an answer, and no function without a name.

use fdguard_trace::GoLines;

pub(crate) fn run(bytes: &[u8]) {
    let Some(lines) = GoLines::parse(bytes) else {
        return;
    };
    let start = lines.entry("main.main").unwrap_or(0x40_1000);
    for address in (start..).step_by(61).take(64) {
        assert!(lines.frames(address).len() <= 201);
    }
}
