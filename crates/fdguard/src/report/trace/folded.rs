//! Folded stacks: one line per stack, frames from outermost to innermost separated by `;`, then the
//! count.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::tree::{Place, StackNode};
use crate::terminal::sanitize_str;

/// What is still open, a line for each stack, sorted by name. Processes of one command are one.
#[must_use]
pub fn text(tree: &StackNode) -> String {
    let mut lines = BTreeMap::new();
    for process in tree.open() {
        fold(process, "", &mut lines);
    }
    let mut text = String::new();
    for (line, count) in lines {
        let _infallible = writeln!(text, "{line} {count}");
    }
    text
}

fn fold(node: &StackNode, outer: &str, lines: &mut BTreeMap<String, u64>) {
    let name = match &node.place {
        Place::Process { comm, .. } => sanitize_str(comm).into_owned(),
        _ => node.name(),
    };
    let line = format!("{outer}{}", escaped(&name));
    for inner in node.open() {
        fold(inner, &format!("{line};"), lines);
    }
    let own: u64 = node.own.values().map(|[open, ..]| open).sum();
    if own > 0 {
        *lines.entry(line).or_default() += own;
    }
}

/// Line breaks were escaped before; this escapes the separator of frames.
fn escaped(name: &str) -> String {
    name.replace(';', "\\u{3b}")
}

#[cfg(test)]
mod tests {
    use fdguard_core::origin::Language;

    use super::super::tree::StackNode;
    use crate::report::trace::testing::{MadeReport, frame};

    fn text(made: &MadeReport) -> String {
        super::text(&StackNode::from_report(&made.report()))
    }

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
            text(&made),
            "srv;[unknown stack] 1\n\
             srv;main (main.c:9);arm (main.c:3) 7\n\
             srv;main (main.c:9);arm (main.c:4) 7\n"
        );
    }

    #[test]
    fn names_cannot_forge_frames_or_lines() {
        let evil = vec![frame("a;b 9\nc;d", Some(("x;\r.js", 1)), Language::Node)];
        let made = MadeReport::default().site("n;m\n", &evil, 3);
        let text = text(&made);
        assert_eq!(
            text,
            "n\\u{3b}m\\n;a\\u{3b}b 9\\nc\\u{3b}d (x\\u{3b}\\r.js:1) 3\n"
        );
        assert_eq!(text.matches(';').count(), 1);
    }

    #[test]
    fn nothing_open_is_an_empty_file() {
        assert_eq!(text(&MadeReport::default()), "");
    }
}
