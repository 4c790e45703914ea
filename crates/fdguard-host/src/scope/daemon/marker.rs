//! Reads the last entry of a JSON Lines log, where an agent records that it has finished.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::super::root::ScopeRoot;

/// How much of a log's end is read. A longer last line is not parsed.
const TAIL: u64 = 1 << 20;

/// The last entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastEntry {
    /// A final result: `"type": "result"`.
    Result {
        /// `"is_error": true`.
        is_error: bool,
    },
    /// Anything else, or nothing.
    Other,
    /// Cannot be read.
    Unreadable,
}

impl LastEntry {
    /// Combines several logs: one result is enough, and an unreadable one could contain it.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (result @ Self::Result { .. }, _) | (_, result @ Self::Result { .. }) => result,
            (Self::Unreadable, _) | (_, Self::Unreadable) => Self::Unreadable,
            _ => Self::Other,
        }
    }
}

/// The combined last entries of these logs. It blocks.
pub(super) fn of_all(root: &ScopeRoot, logs: &[PathBuf]) -> LastEntry {
    let each = logs.iter().map(|log| read_last(root, log));
    each.fold(LastEntry::Other, LastEntry::and)
}

fn read_last(root: &ScopeRoot, log: &Path) -> LastEntry {
    match root.find(log) {
        Ok(None) => LastEntry::Other,
        Ok(Some(_)) => tail(root, log).map_or(LastEntry::Unreadable, |bytes| parse(&bytes)),
        // A path that leaves the root is not one of its logs.
        Err(_) => LastEntry::Other,
    }
}

fn tail(root: &ScopeRoot, log: &Path) -> Option<Vec<u8>> {
    let mut file = std::fs::File::from(root.open(log).ok()?);
    let meta = file.metadata().ok()?;
    if !meta.is_file() {
        return Some(Vec::new());
    }
    let from = meta.len().saturating_sub(TAIL);
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The last line that is a JSON object counts; a torn one behind it does not.
#[must_use]
pub fn parse(bytes: &[u8]) -> LastEntry {
    let mut lines = bytes.rsplit(|byte| *byte == b'\n');
    let entry = lines.find_map(|line| {
        let value = serde_json::from_slice::<serde_json::Value>(line).ok()?;
        value.is_object().then_some(value)
    });
    let Some(entry) = entry else {
        return LastEntry::Other;
    };
    if entry.get("type").and_then(|kind| kind.as_str()) != Some("result") {
        return LastEntry::Other;
    }
    let is_error = entry.get("is_error").and_then(serde_json::Value::as_bool);
    LastEntry::Result {
        is_error: is_error.unwrap_or(false),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn r53_only_the_last_entry_counts() {
        let fine = LastEntry::Result { is_error: false };
        let bad = LastEntry::Result { is_error: true };
        let cases: &[(&str, LastEntry)] = &[
            ("", LastEntry::Other),
            ("no JSON\n", LastEntry::Other),
            ("{\"type\":\"result\"}\n", fine),
            ("{\"type\":\"result\"}", fine),
            ("{\"type\":\"result\",\"is_error\":true}\n\n", bad),
            (
                "{\"type\":\"result\"}\n{\"type\":\"assistant\"}\n",
                LastEntry::Other,
            ),
            (
                "{\"type\":\"assistant\"}\n{\"type\":\"result\"}\n{\"torn\":",
                fine,
            ),
            ("{\"result\":\"type\"}\n", LastEntry::Other),
            ("[\"result\"]\n", LastEntry::Other),
            (
                "{\"text\":\"{\\\"type\\\":\\\"result\\\"}\"}\n",
                LastEntry::Other,
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text.as_bytes()), *expected, "{text}");
        }
    }

    #[test]
    fn a_result_in_one_of_several_logs_is_enough() {
        let dir = tempfile::tempdir().unwrap();
        let root = ScopeRoot::new(dir.path()).unwrap();
        std::fs::write(dir.path().join("a"), "{\"type\":\"result\"}\n").unwrap();
        std::fs::write(dir.path().join("b"), "x\n").unwrap();
        let of = |names: &[&str]| {
            let paths: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            of_all(&root, &paths)
        };
        assert_eq!(of(&["b", "a"]), LastEntry::Result { is_error: false });
        assert_eq!(of(&["b", "absent"]), LastEntry::Other);
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("out")).unwrap();
        assert_eq!(of(&["out"]), LastEntry::Other, "it is not followed");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
