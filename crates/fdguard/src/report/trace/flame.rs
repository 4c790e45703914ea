//! The tree of a flame graph: stacks merged from the outermost frame, with the number of open
//! descriptors.

use fdguard_core::origin::{Culprit, Frame, Language};

use super::{TraceReport, name};
use crate::report::table::counted;
use crate::terminal::sanitize_str;

/// A frame of the graph, with the frames that it called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlameNode {
    /// Its name; safe to show.
    pub name: String,
    /// Its language; `None` for processes and for the root of several.
    pub language: Option<Language>,
    /// Whether it is the culprit.
    pub is_culprit: bool,
    /// How many are open below it.
    pub live: u64,
    /// The largest first.
    pub inner: Vec<Self>,
}

impl FlameNode {
    /// The graph of what is still open, with the process, or all processes, as root.
    #[must_use]
    pub fn from_report(report: &TraceReport) -> Self {
        let mut root = Self::new("all processes".to_owned(), None);
        for (process, site, path) in report.call_paths() {
            let count = path.fds.len() as u64;
            root.live += count;
            let process = format!("{} (pid {})", sanitize_str(&process.comm), process.pid);
            let mut node = root.child(process, None, count);
            if path.stack.is_empty() {
                node.child(format!("[{}]", name::LOST), None, count);
            }
            let culprit = culprit_at(&path.stack, site.culprit.as_ref());
            for (index, frame) in path.stack.iter().enumerate().rev() {
                node = node.child(name::call(frame), Some(frame.language), count);
                node.is_culprit |= Some(index) == culprit;
            }
        }
        root.order();
        match root.inner.as_mut_slice() {
            [_] => root.inner.remove(0),
            _ => root,
        }
    }

    /// The height of the tree, including this frame.
    #[must_use]
    pub fn depth(&self) -> usize {
        1 + self.inner.iter().map(Self::depth).max().unwrap_or(0)
    }

    /// `begin (main.c:23): 312 descriptors still open, 75.0 %`.
    #[must_use]
    pub fn describe(&self, whole: u64) -> String {
        let share = 100.0 * share(self.live, whole);
        let count = counted(self.live, "descriptor");
        let language = self
            .language
            .map(name::language)
            .map(|name| format!(", {name}"));
        let language = language.unwrap_or_default();
        format!("{}: {count} still open, {share:.1} %{language}", self.name)
    }

    fn new(name: String, language: Option<Language>) -> Self {
        Self {
            name,
            language,
            is_culprit: false,
            live: 0,
            inner: Vec::new(),
        }
    }

    fn child(&mut self, name: String, language: Option<Language>, count: u64) -> &mut Self {
        let is_it = |node: &Self| node.name == name && node.language == language;
        let at = self.inner.iter().position(is_it).unwrap_or_else(|| {
            self.inner.push(Self::new(name, language));
            self.inner.len() - 1
        });
        let node = &mut self.inner[at];
        node.live += count;
        node
    }

    /// Ties sort by name, so that the same program gives the same picture.
    fn order(&mut self) {
        self.inner
            .sort_by(|a, b| b.live.cmp(&a.live).then_with(|| a.name.cmp(&b.name)));
        for node in &mut self.inner {
            node.order();
        }
    }
}

/// A fraction, from 0 to 1.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "places in a picture")]
pub fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// The position of the blamed line in the stack: the innermost frame that matches.
fn culprit_at(stack: &[Frame], culprit: Option<&Culprit>) -> Option<usize> {
    let culprit = culprit?;
    stack
        .iter()
        .position(|frame| Culprit::from(frame) == *culprit)
}

#[cfg(test)]
mod tests {
    use fdguard_core::origin::Language;

    use super::FlameNode;
    use crate::report::trace::testing::{MadeReport, frame};

    #[test]
    fn stacks_share_what_they_have_in_common_from_the_outside() {
        let main = frame("main", Some(("main.c", 9)), Language::C);
        let one = vec![frame("arm", Some(("main.c", 3)), Language::C), main.clone()];
        let other = vec![frame("arm", Some(("main.c", 4)), Language::C), main];
        let made = MadeReport::default()
            .site("srv", &one, 5)
            .site("srv", &other, 7);
        let root = FlameNode::from_report(&made.report());
        assert_eq!((root.name.as_str(), root.live), ("srv (pid 100)", 12));
        assert_eq!(root.depth(), 3);
        let main = &root.inner[0];
        assert_eq!((main.name.as_str(), main.live), ("main (main.c:9)", 12));
        let leaves: Vec<_> = main
            .inner
            .iter()
            .map(|node| (node.name.as_str(), node.live))
            .collect();
        assert_eq!(leaves, [("arm (main.c:4)", 7), ("arm (main.c:3)", 5)]);
        assert!(main.inner.iter().all(|node| node.is_culprit) && !main.is_culprit);
        assert_eq!(
            main.inner[1].describe(root.live),
            "arm (main.c:3): 5 descriptors still open, 41.7 %, c"
        );
    }

    #[test]
    fn several_processes_stand_under_one_root() {
        let made = MadeReport::default().site("a", &[], 1).site("b", &[], 2);
        let root = FlameNode::from_report(&made.report());
        assert_eq!((root.name.as_str(), root.live), ("all processes", 3));
        assert_eq!(root.inner[0].name, "b (pid 101)");
        assert_eq!(root.inner[0].inner[0].name, "[unknown stack]");
    }

    #[test]
    fn nothing_open_is_a_root_of_nothing() {
        let root = FlameNode::from_report(&MadeReport::default().report());
        assert_eq!((root.live, root.depth()), (0, 1));
    }
}
