//! What a line must contain: literal parts in order, case-insensitive.

use bstr::ByteSlice as _;
use serde::{Serialize, Serializer};

/// The shortest literal that a pattern may be found by. Shorter ones match every other line.
const SHORTEST: usize = 4;

/// Literal parts with `*` between them. Where a part begins or ends with a letter, a digit or `_`,
/// a word must begin or end there in the line as well, unless a `*` is next to it: `errno 24` is
/// not in `errno 245`, and `ENFILE` is not in `OPENFILE`; `inotify*limit` is in
/// `inotify_init: limit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinePattern {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// In lower case.
    bytes: Vec<u8>,
    /// Whether a word must begin here.
    begins: bool,
    /// Whether a word must end here.
    ends: bool,
}

impl LinePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// When no part is long enough to search for.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains(['\n', '\r']) {
            return Err(format!("pattern {text:?} must be one line"));
        }
        let pieces: Vec<&str> = text.split('*').collect();
        let last = pieces.len() - 1;
        let parts: Vec<Part> = pieces
            .iter()
            .enumerate()
            .filter(|(_, piece)| !piece.is_empty())
            .map(|(index, piece)| Part::new(piece, index == 0, index == last))
            .collect();
        let pattern = Self {
            text: text.to_owned(),
            parts,
        };
        if pattern.anchor().len() < SHORTEST {
            return Err(format!(
                "pattern {text:?} needs at least {SHORTEST} literal characters in a row"
            ));
        }
        Ok(pattern)
    }

    /// The text as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The longest part: a line without it does not match.
    pub(super) fn anchor(&self) -> &[u8] {
        let parts = self.parts.iter().map(|part| part.bytes.as_slice());
        parts.max_by_key(|bytes| bytes.len()).unwrap_or_default()
    }

    /// Where in the line it begins, if it matches.
    #[must_use]
    pub fn find(&self, line: &[u8]) -> Option<usize> {
        self.find_in_lower(&line.to_ascii_lowercase())
    }

    /// The same for a line in lower case: a caller with many patterns converts it once.
    pub(super) fn find_in_lower(&self, line: &[u8]) -> Option<usize> {
        let mut first = None;
        let mut from = 0;
        // The earliest match of each part is the best: it leaves the most room for the others.
        for part in &self.parts {
            let at = part.find(line, from)?;
            first.get_or_insert(at);
            from = at + part.bytes.len();
        }
        first
    }
}

impl Serialize for LinePattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl Part {
    fn new(text: &str, is_first: bool, is_last: bool) -> Self {
        let bytes = text.to_ascii_lowercase().into_bytes();
        Self {
            begins: is_first && bytes.first().copied().is_some_and(is_word),
            ends: is_last && bytes.last().copied().is_some_and(is_word),
            bytes,
        }
    }

    fn find(&self, line: &[u8], mut from: usize) -> Option<usize> {
        let first = *self.bytes.first()?;
        while let Some(skipped) = line.get(from..)?.find_byte(first) {
            let at = from + skipped;
            if line[at..].starts_with(&self.bytes) && self.stands_at(line, at) {
                return Some(at);
            }
            from = at + 1;
        }
        None
    }

    fn stands_at(&self, line: &[u8], at: usize) -> bool {
        let behind = line.get(at + self.bytes.len()).copied();
        (!self.begins || begins_word(&line[..at])) && (!self.ends || !behind.is_some_and(is_word))
    }
}

/// Whether a word can begin after these bytes. In a coloured log the letter before may end an
/// escape sequence (`ESC[31m`), in JSON an escaped newline (`\n`).
fn begins_word(before: &[u8]) -> bool {
    let Some((last, head)) = before.split_last() else {
        return true;
    };
    if !is_word(*last) || (b"nrt".contains(last) && head.ends_with(b"\\")) {
        return true;
    }
    let is_parameter = |byte: &u8| byte.is_ascii_digit() || *byte == b';';
    let parameters = head.iter().rev().take_while(|byte| is_parameter(byte));
    let sequence = &head[..head.len() - parameters.count()];
    let escapes: [&[u8]; 4] = [b"\x1b[", b"\\u001b[", b"\\x1b[", b"\\033["];
    escapes.iter().any(|escape| sequence.ends_with(escape))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::LinePattern;

    fn find(pattern: &str, line: &str) -> Option<usize> {
        LinePattern::parse(pattern).unwrap().find(line.as_bytes())
    }

    #[test]
    fn capitals_do_not_matter() {
        assert_eq!(
            find("Too Many open files", "x: too many OPEN files"),
            Some(3)
        );
    }

    #[test]
    fn a_number_is_matched_as_a_whole() {
        assert_eq!(find("errno 24", "[Errno 24]"), Some(1));
        assert_eq!(find("errno 24", "[Errno 245]"), None);
        assert_eq!(find("errno 24", "[Errno 245] [Errno 24]"), Some(13));
    }

    #[test]
    fn a_word_is_matched_as_a_whole() {
        for line in ["OPENFILE", "enfiled", "MAX_ENFILE", "ENFILE_2"] {
            assert_eq!(find("ENFILE", line), None, "{line}");
        }
        for line in ["ENFILE", "(ENFILE)", "-ENFILE:", "é ENFILE.", "=ENFILE"] {
            assert!(find("ENFILE", line).is_some(), "{line}");
        }
    }

    #[test]
    fn colours_and_escaped_line_ends_are_no_part_of_a_word() {
        for line in [
            "\u{1b}[31mEMFILE\u{1b}[0m",
            "\u{1b}[1;31mEMFILE",
            "\u{1b}[mEMFILE",
            r#"{"error":"\u001b[31mEMFILE"}"#,
            r#"{"error":"trace\nEMFILE: x"}"#,
        ] {
            assert!(find("EMFILE", line).is_some(), "{line}");
        }
        for line in ["[31mEMFILE", "nEMFILE", "\u{1b}[31mxEMFILE"] {
            assert_eq!(find("EMFILE", line), None, "{line}");
        }
    }

    #[test]
    fn a_star_lets_the_rest_of_a_word_be() {
        assert_eq!(
            find("inotify*limit", "inotify_add_watch: limits, limit"),
            Some(0)
        );
        assert_eq!(find("inotify*limit", "limit of inotify"), None);
        assert_eq!(find("*notify*", "xinotify_y"), Some(2));
        assert_eq!(
            find("spawn*bad file", "bad file, spawn, bad file"),
            Some(10)
        );
    }

    #[test]
    fn parts_do_not_overlap() {
        assert_eq!(find("abcd*cdef", "abcdef"), None);
        assert_eq!(find("abcd*cdef", "abcdcdef"), Some(0));
    }

    #[test]
    fn what_is_too_short_to_look_for_is_a_mistake() {
        for wrong in ["", "*", "abc", "ab*cd*ef", "two\nlines"] {
            assert!(LinePattern::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_may_come(line: Vec<u8>, pattern in "[a-c*]{4,12}") {
            if let Ok(pattern) = LinePattern::parse(&pattern) {
                let at = pattern.find(&line);
                prop_assert!(at.is_none_or(|at| at < line.len()));
            }
        }

        #[test]
        fn a_text_is_found_between_spaces(text in "[a-zA-Z0-9:()]{4,20}", before in "[a-z ]{0,9}") {
            let line = format!("{before} {text} tail");
            prop_assert!(find(&text, &line).is_some());
        }
    }
}
