//! What could not be seen.

use serde::{Deserialize, Serialize};

/// Something that could not be read. It is never reported as zero or as absent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gap {
    /// What is missing from the result.
    pub what: String,
    /// Why it could not be read.
    pub why: String,
    /// What would make it readable.
    pub remedy: String,
}

impl Gap {
    /// A gap from its three sentences.
    pub fn new(what: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            why: why.into(),
            remedy: remedy.into(),
        }
    }
}
