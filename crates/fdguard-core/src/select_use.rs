//! Whether the limit at number 1024 affects a process at all: only `select()` has it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Text;

/// Whether a process can call `select()` on the numbers of its descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "select", rename_all = "kebab-case")]
pub enum SelectUse {
    /// It can: these programs and libraries in its memory import it. Whether they call it, and with
    /// a high number, is unknown.
    Imports {
        /// Their file names.
        objects: Vec<Text>,
    },
    /// Nothing in its memory imports it.
    Absent,
    /// Unknown.
    Unknown {
        /// Why not.
        why: String,
    },
}

impl SelectUse {
    /// Unknown, for this reason.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown { why: why.into() }
    }
}

/// The rest of a sentence that starts with "the process".
impl fmt::Display for SelectUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Imports { objects } => match objects.as_slice() {
                [] => f.write_str("can call select()"),
                [one] => write!(f, "can call select(): {} imports it", one.to_lossy()),
                [one, two] => {
                    let (one, two) = (one.to_lossy(), two.to_lossy());
                    write!(f, "can call select(): {one} and {two} import it")
                }
                [one, two, rest @ ..] => {
                    let (one, two, more) = (one.to_lossy(), two.to_lossy(), rest.len());
                    write!(
                        f,
                        "can call select(): {one}, {two} and {more} more import it"
                    )
                }
            },
            Self::Absent => f.write_str("does not import select()"),
            Self::Unknown { why } => write!(f, "if it uses select() (unknown: {why})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SelectUse;
    use crate::Text;

    fn imports(names: &[&str]) -> SelectUse {
        SelectUse::Imports {
            objects: names.iter().map(|name| Text::from(*name)).collect(),
        }
    }

    #[test]
    fn r7_the_sentence_names_who_imports_it() {
        let said = |names: &[&str]| imports(names).to_string();
        assert_eq!(said(&["a.so"]), "can call select(): a.so imports it");
        assert_eq!(said(&["a", "b"]), "can call select(): a and b import it");
        let four = "can call select(): a, b and 2 more import it";
        assert_eq!(said(&["a", "b", "c", "d"]), four);
        assert_eq!(SelectUse::Absent.to_string(), "does not import select()");
        assert_eq!(
            SelectUse::unknown("permission denied").to_string(),
            "if it uses select() (unknown: permission denied)"
        );
    }

    #[test]
    fn every_answer_survives_json() {
        let odd = SelectUse::Imports {
            objects: vec![Text::from(&b"lib\xff.so"[..])],
        };
        for answer in [
            imports(&["a"]),
            odd,
            SelectUse::Absent,
            SelectUse::unknown("x"),
        ] {
            let json = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<SelectUse>(&json).unwrap(), answer);
        }
        let json = serde_json::to_string(&imports(&["a"])).unwrap();
        assert_eq!(json, r#"{"select":"imports","objects":["a"]}"#);
    }
}
