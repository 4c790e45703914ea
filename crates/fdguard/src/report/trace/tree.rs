//! The call paths of a trace as one tree, merged from the outermost frame. Folded stacks, the flame
//! graph and the profile are written from it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fdguard_core::origin::{Culprit, Frame, Language};
use fdguard_core::{Class, Pid};
use fdguard_diagnose::trace::{ProcessSites, TraceReport};
use fdguard_trace::CallPath;

use super::name;
use crate::terminal::sanitize_str;

/// A place in the tree, with the places that it called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackNode {
    /// What it is.
    pub place: Place,
    /// Whether it is the culprit.
    pub is_culprit: bool,
    /// How many are open below it.
    pub live: u64,
    /// How many the call paths that end here have open, opened and closed, by class. The class is
    /// known for open descriptors, not for closed ones.
    pub own: BTreeMap<Option<Class>, [u64; 3]>,
    /// The largest first.
    pub inner: Vec<Self>,
}

/// What a node stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The root.
    AllProcesses,
    /// A process, below the root.
    Process {
        /// Its command name.
        comm: String,
        /// Its pid.
        pid: Pid,
    },
    /// The only frame of a stack that is not known.
    UnknownStack,
    /// A frame.
    Frame(Frame),
}

impl StackNode {
    /// The tree of everything that was opened.
    #[must_use]
    pub fn from_report(report: &TraceReport) -> Self {
        let mut root = Self::new(Place::AllProcesses);
        for process in &report.processes {
            for site in &process.sites {
                for path in &site.paths {
                    root.add(process, path, site.culprit.as_ref());
                }
            }
            for path in report.closed_paths(process.pid) {
                root.add(process, &path, None);
            }
        }
        root.order();
        root
    }

    /// The part of the tree that holds something: one process, or all of them.
    #[must_use]
    pub fn picture(&self) -> &Self {
        let mut processes = self.open();
        match (processes.next(), processes.next()) {
            (Some(only), None) => only,
            _ => self,
        }
    }

    /// The places below it along which something is open.
    pub fn open(&self) -> impl Iterator<Item = &Self> {
        self.inner.iter().filter(|node| node.live > 0)
    }

    /// The height of what is open, including this place.
    #[must_use]
    pub fn depth(&self) -> usize {
        1 + self.open().map(Self::depth).max().unwrap_or(0)
    }

    /// Its name; safe to show.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.place {
            Place::AllProcesses => "all processes".to_owned(),
            Place::Process { comm, pid } => format!("{} (pid {pid})", sanitize_str(comm)),
            Place::UnknownStack => format!("[{}]", name::LOST),
            Place::Frame(frame) => name::call(frame),
        }
    }

    /// Its language, if it is a frame.
    #[must_use]
    pub fn language(&self) -> Option<Language> {
        match &self.place {
            Place::Frame(frame) => Some(frame.language),
            _ => None,
        }
    }

    fn new(place: Place) -> Self {
        Self {
            place,
            is_culprit: false,
            live: 0,
            own: BTreeMap::new(),
            inner: Vec::new(),
        }
    }

    fn add(&mut self, process: &ProcessSites, path: &CallPath, culprit: Option<&Culprit>) {
        let live = path.fds.len() as u64;
        self.live += live;
        let (comm, pid) = (process.comm.clone(), process.pid);
        let mut node = self.child(Place::Process { comm, pid }, live);
        if path.stack.is_empty() {
            node = node.child(Place::UnknownStack, live);
        }
        // The innermost frame that matches.
        let mut frames = path.stack.iter();
        let culprit = culprit.and_then(|one| frames.position(|frame| Culprit::from(frame) == *one));
        for (index, frame) in path.stack.iter().enumerate().rev() {
            node = node.child(Place::Frame(frame.clone()), live);
            node.is_culprit |= Some(index) == culprit;
        }
        let open = process.classes(path).into_iter();
        let open = open.map(|(class, live)| (class, [live, live, 0]));
        let gone = [0, path.opened.saturating_sub(live), path.closed];
        let gone = (gone != [0; 3]).then_some((None, gone));
        for (class, counts) in open.chain(gone) {
            let sums = node.own.entry(class.cloned()).or_default();
            sums.iter_mut()
                .zip(counts)
                .for_each(|(sum, count)| *sum += count);
        }
    }

    fn child(&mut self, place: Place, live: u64) -> &mut Self {
        let at = self.inner.iter().position(|node| node.place == place);
        let at = at.unwrap_or_else(|| {
            self.inner.push(Self::new(place));
            self.inner.len() - 1
        });
        let node = &mut self.inner[at];
        node.live += live;
        node
    }

    /// Ties sort by name, so that the same program gives the same picture.
    fn order(&mut self) {
        self.inner
            .sort_by_cached_key(|node| (Reverse(node.live), node.name()));
        for node in &mut self.inner {
            node.order();
        }
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::origin::Language;

    use super::StackNode;
    use crate::report::trace::testing::{MadeReport, frame};

    #[test]
    fn stacks_share_what_they_have_in_common_from_the_outside() {
        let main = frame("main", Some(("main.c", 9)), Language::C);
        let one = vec![frame("arm", Some(("main.c", 3)), Language::C), main.clone()];
        let other = vec![frame("arm", Some(("main.c", 4)), Language::C), main];
        let made = MadeReport::default()
            .site("srv", &one, 5)
            .site("srv", &other, 7);
        let tree = StackNode::from_report(&made.report());
        let root = tree.picture();
        assert_eq!((root.name().as_str(), root.live), ("srv (pid 100)", 12));
        assert_eq!(root.depth(), 3);
        let main = &root.inner[0];
        assert_eq!((main.name().as_str(), main.live), ("main (main.c:9)", 12));
        let leaves = main.inner.iter().map(|node| (node.name(), node.live));
        let leaves: Vec<_> = leaves.collect();
        let expected = [("arm (main.c:4)", 7), ("arm (main.c:3)", 5)];
        assert_eq!(leaves, expected.map(|(name, live)| (name.to_owned(), live)));
        assert!(main.inner.iter().all(|node| node.is_culprit) && !main.is_culprit);
        let counts: Vec<_> = main.inner[1].own.values().copied().collect();
        assert_eq!(counts, [[1, 6, 5], [4, 4, 0]], "unknown class first");
    }

    #[test]
    fn files_of_the_same_name_are_two_places() {
        let one = [frame("open", Some(("/a/x.c", 1)), Language::C)];
        let other = [frame("open", Some(("/b/x.c", 1)), Language::C)];
        let made = MadeReport::default()
            .site("srv", &one, 1)
            .site("srv", &other, 1);
        let tree = StackNode::from_report(&made.report());
        assert_eq!(tree.picture().inner.len(), 2);
    }

    #[test]
    fn several_processes_stand_under_one_root() {
        let made = MadeReport::default().site("a", &[], 1).site("b", &[], 2);
        let tree = StackNode::from_report(&made.report());
        let root = tree.picture();
        assert_eq!((root.name().as_str(), root.live), ("all processes", 3));
        assert_eq!(root.inner[0].name(), "b (pid 101)");
        assert_eq!(root.inner[0].inner[0].name(), "[unknown stack]");
    }

    #[test]
    fn nothing_open_is_a_root_of_nothing() {
        let tree = StackNode::from_report(&MadeReport::default().report());
        assert_eq!((tree.picture().live, tree.picture().depth()), (0, 1));
    }
}
