//! Names of frames. Text from the traced program is sanitised here, so that it cannot control a
//! terminal.

use std::borrow::Cow;

use fdguard_core::Text;
use fdguard_core::blame::unread_language;
use fdguard_core::origin::{Culprit, Frame, Language};

use crate::terminal::{sanitize, sanitize_bytes, sanitize_str};

/// Printed for an unknown stack.
pub const LOST: &str = "unknown stack";

/// `main.c:23 begin`, or as much of it as is known.
#[must_use]
pub fn line(frame: &Frame) -> String {
    match &frame.module {
        Some(module) if frame.line.is_none() && !module.is_empty() => {
            format!(
                "{} in {}",
                function(frame.function.as_deref()),
                base(module)
            )
        }
        _ => culprit(&Culprit::from(frame)),
    }
}

/// The same for the culprit.
#[must_use]
pub fn culprit(culprit: &Culprit) -> String {
    let function = function(culprit.function.as_deref());
    match (&culprit.file, culprit.line, &culprit.function) {
        (Some(file), Some(line), _) => format!("{}:{line} {function}", base(file)),
        (Some(file), None, None) => format!("{} (no debug information)", base(file)),
        _ => function.into_owned(),
    }
}

/// The same for a site: without a culprit, its stack shows why.
#[must_use]
pub fn site(found: Option<&Culprit>, stack: &[Frame]) -> String {
    match (found, unread_language(stack)) {
        (None, Some(language)) => format!("a {language} line (not read)"),
        _ => place(found),
    }
}

/// The same for a culprit that may be missing.
#[must_use]
pub fn place(found: Option<&Culprit>) -> String {
    found.map_or_else(|| LOST.to_owned(), culprit)
}

/// `begin (main.c:23)`: the function first, as in flame graphs.
#[must_use]
pub fn call(frame: &Frame) -> String {
    let function = function(frame.function.as_deref());
    match (&frame.file, frame.line, &frame.module) {
        (Some(file), Some(line), _) => format!("{function} ({}:{line})", base(file)),
        (_, _, Some(module)) if !module.is_empty() => format!("{function} ({})", base(module)),
        _ => function.into_owned(),
    }
}

/// The contract's name of a language.
#[must_use]
pub fn language(language: Language) -> &'static str {
    match language {
        Language::C => "c",
        Language::Cpp => "c++",
        Language::Rust => "rust",
        Language::Go => "go",
        Language::Java => "java",
        Language::Node => "node",
        Language::Python => "python",
        _ => "native",
    }
}

fn function(name: Option<&str>) -> Cow<'_, str> {
    sanitize_str(name.unwrap_or("?"))
}

/// The part after the last slash, or all of it.
fn base(path: &Text) -> String {
    let name = path.as_bytes().rsplit(|byte| *byte == b'/').next();
    match name {
        Some(name) if !name.is_empty() => sanitize_bytes(name),
        _ => sanitize(path),
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::origin::Language;

    use super::{call, line};
    use crate::report::trace::testing::frame;

    #[test]
    fn a_frame_is_named_by_what_is_known_of_it() {
        let whole = frame("begin", Some(("/srv/app/main.c", 23)), Language::C);
        assert_eq!(line(&whole), "main.c:23 begin");
        assert_eq!(call(&whole), "begin (main.c:23)");
        let mut bare = frame("begin", None, Language::Native);
        assert_eq!((line(&bare), call(&bare)), ("begin".into(), "begin".into()));
        bare.module = Some("/usr/lib/libx.so.1".into());
        bare.function = None;
        assert_eq!(line(&bare), "? in libx.so.1");
        assert_eq!(call(&bare), "? (libx.so.1)");
    }

    #[test]
    fn what_the_program_chose_does_not_act_on_a_terminal() {
        let evil = frame("\x1b[2Jgo\n", Some(("/srv/a\x07.py", 1)), Language::Python);
        assert_eq!(line(&evil), "a\\u{7}.py:1 \\u{1b}[2Jgo\\n");
        let odd = frame("go", Some(("/srv/", 1)), Language::Python);
        assert_eq!(line(&odd), "/srv/:1 go");
    }
}
