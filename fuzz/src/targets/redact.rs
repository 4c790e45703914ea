//! Text that is redacted before it leaves the machine: once redacted, it stays the same.

use fdguard_core::redact::Redactor;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let mut redactor = Redactor::new();
    let once = redactor.prose(text);
    // A name that looks like a token with a number (`~a-1`) may become one later.
    if !(text.contains('~') && text.contains(|c: char| c.is_ascii_digit())) {
        assert_eq!(redactor.prose(text), once, "one name has one replacement");
    }
}
