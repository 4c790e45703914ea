//! Small origins for tests.

use crate::origin::{Culprit, Frame, Language, Origin};

/// A frame of a Python program.
pub(super) fn frame(file: &str, function: &str, line: u32) -> Frame {
    Frame {
        file: Some(file.into()),
        function: Some(function.to_owned()),
        line: Some(line),
        module: None,
        language: Language::Python,
    }
}

/// Where something was opened.
pub(super) fn origin(stack: Vec<Frame>) -> Origin {
    Origin {
        leaking_caller: None,
        through: Vec::new(),
        partly: false,
        culprit: Culprit::from_stack(&stack),
        stack,
        thread: Some(1),
        live: 1,
        opened: 1,
        closed: 0,
        oldest_age_seconds: Some(1.0),
    }
}
