//! Where in the code descriptors come from, as shown in the public JSON.

use serde::{Deserialize, Serialize};

use crate::Text;
use crate::blame::blamed;
use crate::event::Tid;

/// The language of a frame, under its public name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Language {
    /// C.
    C,
    /// C++.
    #[serde(rename = "c++")]
    Cpp,
    /// Rust.
    Rust,
    /// Go.
    Go,
    /// Java and other languages on the JVM.
    Java,
    /// JavaScript in Node.
    Node,
    /// Python.
    Python,
    /// Machine code of unknown origin.
    Native,
}

impl Language {
    /// Whether it has its own runtime, whose machine code is less useful than its lines.
    #[must_use]
    pub fn has_runtime(self) -> bool {
        matches!(self, Self::Python | Self::Node | Self::Java)
    }
}

/// One frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The source file; absent without debug information.
    pub file: Option<Text>,
    /// The function, as its language writes it.
    pub function: Option<String>,
    /// The line.
    pub line: Option<u32>,
    /// The library, program or package that it belongs to.
    pub module: Option<Text>,
    /// Its language.
    pub language: Language,
}

/// A stack, the innermost frame first.
pub type Stack = Vec<Frame>;

/// The line to examine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Culprit {
    /// The source file.
    pub file: Option<Text>,
    /// The function.
    pub function: Option<String>,
    /// The line.
    pub line: Option<u32>,
    /// Its language.
    pub language: Language,
}

impl Culprit {
    /// The culprit of a stack: the innermost frame of the application's own code.
    #[must_use]
    pub fn from_stack(stack: &[Frame]) -> Option<Self> {
        blamed(stack)
    }
}

impl From<&Frame> for Culprit {
    fn from(frame: &Frame) -> Self {
        Self {
            file: frame.file.clone(),
            function: frame.function.clone(),
            line: frame.line,
            language: frame.language,
        }
    }
}

/// One site that opens descriptors, with how many are left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The line of the application.
    pub culprit: Option<Culprit>,
    /// The innermost caller that alone leaks, where other callers of the line close what it opens.
    #[serde(default, rename = "telling", skip_serializing_if = "Option::is_none")]
    pub leaking_caller: Option<Culprit>,
    /// The packages that the line went through to open them, its direct dependency first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
    /// Whether the same stack also closed many of what it opened: they stay open only on some
    /// paths, such as after a failed start, an exception or a timeout.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partly: bool,
    /// The whole stack, innermost frame first.
    pub stack: Stack,
    /// The thread that opened the oldest open one.
    pub thread: Option<Tid>,
    /// How many are open.
    pub live: u64,
    /// How many were opened.
    pub opened: u64,
    /// How many of them were closed.
    pub closed: u64,
    /// How long the oldest has been open.
    pub oldest_age_seconds: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::{Culprit, Frame, Language, Origin};

    #[test]
    fn r19_an_origin_has_the_fields_of_the_contract_and_comes_back() {
        let frame = Frame {
            file: Some("main.cc".into()),
            function: Some("serve".to_owned()),
            line: Some(7),
            module: None,
            language: Language::Cpp,
        };
        let origin = Origin {
            culprit: Some(Culprit::from(&frame)),
            leaking_caller: None,
            through: Vec::new(),
            partly: false,
            stack: vec![frame],
            thread: Some(12),
            live: 2,
            opened: 5,
            closed: 3,
            oldest_age_seconds: Some(1.5),
        };
        let json = serde_json::to_value(&origin).unwrap();
        let expected = serde_json::json!({
            "culprit": {"file": "main.cc", "function": "serve", "line": 7, "language": "c++"},
            "stack": [{"file": "main.cc", "function": "serve", "line": 7, "module": null, "language": "c++"}],
            "thread": 12, "live": 2, "opened": 5, "closed": 3, "oldest_age_seconds": 1.5,
        });
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_value::<Origin>(json).unwrap(), origin);
    }
}
