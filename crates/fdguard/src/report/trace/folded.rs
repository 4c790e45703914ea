//! Folded stacks: one line per stack, frames from outermost to innermost separated by `;`, then the
//! count.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fdguard_diagnose::trace::TraceReport;

use super::name;
use crate::terminal::sanitize_str;

/// What is still open, a line for each stack, sorted by name.
#[must_use]
pub fn text(report: &TraceReport) -> String {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (process, _, path) in report.call_paths() {
        let mut line = escaped(&sanitize_str(&process.comm));
        if path.stack.is_empty() {
            let _infallible = write!(line, ";[{}]", name::LOST);
        }
        for frame in path.stack.iter().rev() {
            line.push(';');
            line.push_str(&escaped(&name::call(frame)));
        }
        *lines.entry(line).or_default() += path.fds.len() as u64;
    }
    let mut text = String::new();
    for (line, count) in lines.into_iter().filter(|(_, count)| *count > 0) {
        let _infallible = writeln!(text, "{line} {count}");
    }
    text
}

/// Line breaks were escaped before; this escapes the separator of frames.
fn escaped(name: &str) -> String {
    name.replace(';', "\\u{3b}")
}

#[cfg(test)]
mod tests {
    use fdguard_core::origin::Language;

    use super::text;
    use crate::report::trace::testing::{MadeReport, frame};

    #[test]
    fn stacks_are_folded_from_the_outside_in_and_equal_ones_are_one() {
        let main = frame("main", Some(("main.c", 9)), Language::C);
        let one = vec![frame("arm", Some(("main.c", 3)), Language::C), main.clone()];
        let other = vec![frame("arm", Some(("main.c", 4)), Language::C), main];
        let made = MadeReport::default()
            .site("srv", &one, 5)
            .site("srv", &other, 7)
            .site("srv", &one, 2)
            .site("srv", &[], 1);
        assert_eq!(
            text(&made.report()),
            "srv;[unknown stack] 1\n\
             srv;main (main.c:9);arm (main.c:3) 7\n\
             srv;main (main.c:9);arm (main.c:4) 7\n"
        );
    }

    #[test]
    fn names_cannot_forge_frames_or_lines() {
        let evil = vec![frame("a;b 9\nc;d", Some(("x;\r.js", 1)), Language::Node)];
        let made = MadeReport::default().site("n;m\n", &evil, 3);
        let text = text(&made.report());
        assert_eq!(
            text,
            "n\\u{3b}m\\n;a\\u{3b}b 9\\nc\\u{3b}d (x\\u{3b}\\r.js:1) 3\n"
        );
        assert_eq!(text.matches(';').count(), 1);
    }

    #[test]
    fn nothing_open_is_an_empty_file() {
        assert_eq!(text(&MadeReport::default().report()), "");
    }
}
