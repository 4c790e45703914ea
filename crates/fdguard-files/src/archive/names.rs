//! Names that a file has while it moves into the archive. Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use fdguard_core::hex;
use sha2::{Digest as _, Sha256};

/// The suffix of a file while it is archived.
const CLOSING: &[u8] = b".closing";

fn with(name: &OsStr, suffix: &[u8]) -> OsString {
    let mut bytes = name.as_bytes().to_vec();
    bytes.extend(suffix);
    OsString::from_vec(bytes)
}

/// The name during the archive.
pub(super) fn closing(name: &OsStr) -> OsString {
    with(name, CLOSING)
}

/// The name before an archive started; the same name if none did.
pub(super) fn original(name: &OsStr) -> &OsStr {
    let stem = name.as_bytes().strip_suffix(CLOSING);
    stem.filter(|stem| !stem.is_empty())
        .map_or(name, OsStr::from_bytes)
}

/// The lock file of a name: short, however long the name is.
pub(super) fn lock(name: &OsStr) -> OsString {
    let digest = hex::encode(&Sha256::digest(name.as_bytes()));
    format!(".fdguard-{}.lock", &digest[..16]).into()
}

/// The name itself, `name.1`, `name.2`, …
pub(super) fn numbered(name: &OsStr, number: u32) -> OsString {
    if number == 0 {
        return name.to_owned();
    }
    with(name, format!(".{number}").as_bytes())
}

/// The name of an incomplete copy.
pub(super) fn unfinished(name: &OsStr) -> OsString {
    with(name, b".tmp")
}

/// Whether each line is a JSON value, by the name.
pub(super) fn has_json_lines(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.ends_with(b".jsonl") || name.ends_with(b".ndjson")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::{closing, has_json_lines, lock, numbered, original};

    #[test]
    fn a_name_comes_back_whatever_its_bytes() {
        for name in [&b"log.jsonl"[..], b"\xff\xfe", b"a.closing.b", b".closing"] {
            let name = OsStr::from_bytes(name);
            assert_eq!(original(&closing(name)), name);
            assert_eq!(numbered(name, 0), name);
        }
        assert_eq!(original(OsStr::new(".closing")), ".closing");
        assert_eq!(numbered(OsStr::new("a"), 12), "a.12");
    }

    #[test]
    fn lock_files_are_short_and_differ() {
        let long = "x".repeat(255);
        assert_eq!(lock(OsStr::new(&long)).len(), 30);
        assert_ne!(lock(OsStr::new("a")), lock(OsStr::new("b")));
    }

    #[test]
    fn json_lines_are_known_by_their_name() {
        assert!(has_json_lines(OsStr::new("a.jsonl")));
        assert!(!has_json_lines(OsStr::new("a.json")));
    }
}
