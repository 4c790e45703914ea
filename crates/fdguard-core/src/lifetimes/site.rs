//! The call paths of one line, judged separately and combined.
//!
//! A helper that opens for two callers is one line: if one of them closes what it gets and the
//! other does not, only the other leaks. Paths are distinguished by the application's own lines,
//! because the path through libraries and the loader differs from call to call.

use std::collections::HashMap;

use super::course::{PathCourse, PathJudgement, is_renewal, judge};
use super::history::{Lifetime, PathHistory};
use crate::blame::{blamed, leaking_caller_frame, own_frames};
use crate::event::OpenCall;
use crate::origin::{Culprit, Frame, Stack};

/// A stack of a process and what it did.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedPath {
    /// The frames, innermost first.
    pub stack: Stack,
    /// What it opened and closed.
    pub history: PathHistory,
}

/// One call path to a site: the stacks that go through the same lines of the application.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedPath {
    /// The stack that opened most of it, innermost first.
    pub stack: Stack,
    /// What it opened and closed.
    pub history: PathHistory,
    /// The judgement of that.
    pub judgement: PathJudgement,
    /// Whether it is one of those that leak.
    pub is_leaking: bool,
}

impl JudgedPath {
    /// What was open when the end began, or is now.
    #[must_use]
    pub fn open_at_end(&self) -> &[Lifetime] {
        match self.judgement.is_released {
            true => &self.judgement.survivors,
            false => &self.history.live,
        }
    }
}

/// A line that opens descriptors.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedSite {
    /// The line; absent where the stacks were lost.
    pub culprit: Option<Culprit>,
    /// The only caller that leaks, where other callers close what they open.
    pub leaking_caller: Option<Culprit>,
    /// Its call paths, those that leak first, then those with the most open.
    pub paths: Vec<JudgedPath>,
}

impl JudgedSite {
    /// How many all paths opened.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.paths.iter().map(|path| path.history.opened).sum()
    }

    /// How many of those were closed.
    #[must_use]
    pub fn closed(&self) -> u64 {
        self.paths.iter().map(|path| path.history.closed).sum()
    }

    /// How many are open, or were when the end began.
    #[must_use]
    pub fn live(&self) -> u64 {
        let open = self.paths.iter().map(|path| path.open_at_end().len());
        open.sum::<usize>() as u64
    }

    /// The paths that leak.
    pub fn leaking(&self) -> impl Iterator<Item = &JudgedPath> {
        self.paths.iter().filter(|path| path.is_leaking)
    }

    /// Whether it leaks.
    #[must_use]
    pub fn is_leaking(&self) -> bool {
        self.paths.iter().any(|path| path.is_leaking)
    }

    /// What leaked, the oldest first.
    #[must_use]
    pub fn survivors(&self) -> Vec<Lifetime> {
        let leaking = self.leaking();
        let mut all: Vec<Lifetime> = leaking
            .flat_map(|path| path.judgement.survivors.iter().copied())
            .collect();
        all.sort_by(|a, b| a.opened.real.total_cmp(&b.opened.real));
        all
    }
}

/// The sites of a process: those that leak first, then those with the most open.
#[must_use]
pub fn sites(paths: Vec<NamedPath>) -> Vec<JudgedSite> {
    let mut by_lines: HashMap<PathKey, NamedPath> = HashMap::new();
    let mut most: HashMap<PathKey, u64> = HashMap::new();
    for path in paths {
        let culprit = blamed(&path.stack);
        let key = (culprit, path.history.call, own_lines(&path.stack));
        let opened = path.history.opened;
        match by_lines.get_mut(&key) {
            Some(same) => {
                same.history.merge(&path.history);
                let before = most.entry(key).or_default();
                if opened > *before {
                    *before = opened;
                    same.stack = path.stack;
                }
            }
            None => {
                most.insert(key.clone(), opened);
                by_lines.insert(key, path);
            }
        }
    }
    let judged: Vec<JudgedPath> = judged(by_lines.into_values().collect());
    let mut by_culprit: HashMap<Option<Culprit>, Vec<JudgedPath>> = HashMap::new();
    for path in judged {
        let culprit = blamed(&path.stack);
        by_culprit.entry(culprit).or_default().push(path);
    }
    let mut sites: Vec<JudgedSite> = by_culprit
        .into_iter()
        .map(|(culprit, paths)| site(culprit, paths))
        .collect();
    sites.sort_by(|a, b| {
        let key = |site: &JudgedSite| (site.is_leaking(), site.live(), site.opened());
        // Ties are broken by name, so that the same program gives the same order.
        let name = |site: &JudgedSite| format!("{:?}", site.culprit);
        key(b).cmp(&key(a)).then_with(|| name(a).cmp(&name(b)))
    });
    sites
}

/// Judges each path; one that renews what another has opened rolls.
fn judged(paths: Vec<NamedPath>) -> Vec<JudgedPath> {
    let course = |path: &NamedPath| {
        let mut judgement = judge(&path.history);
        let others = paths.iter().filter(|other| !std::ptr::eq(*other, path));
        let arrives = judgement.course == PathCourse::Arrives;
        if arrives
            && others
                .into_iter()
                .any(|other| is_renewal(&path.history, &other.history))
        {
            judgement.course = PathCourse::Rolls;
        }
        judgement
    };
    let judgements: Vec<PathJudgement> = paths.iter().map(course).collect();
    let pairs = paths.into_iter().zip(judgements);
    pairs
        .map(|(path, judgement)| JudgedPath {
            stack: path.stack,
            is_leaking: judgement.course == PathCourse::Arrives,
            history: path.history,
            judgement,
        })
        .collect()
}

fn site(culprit: Option<Culprit>, mut paths: Vec<JudgedPath>) -> JudgedSite {
    if !paths.iter().any(|path| path.is_leaking) {
        blame_together(&mut paths);
    }
    paths.sort_by_key(|path| {
        let count = path.judgement.survivors.len();
        (
            !path.is_leaking,
            std::cmp::Reverse((count, path.history.opened)),
        )
    });
    let leaking_caller = leaking_caller(&paths);
    JudgedSite {
        culprit,
        leaking_caller,
        paths,
    }
}

/// A line that many callers use may leak a few for each: combined they show it.
fn blame_together(paths: &mut [JudgedPath]) {
    let is_undecided = |path: &JudgedPath| {
        let has_some = !path.judgement.survivors.is_empty();
        has_some && path.judgement.course == PathCourse::Unclear && !path.history.is_used_well()
    };
    let mut together: HashMap<OpenCall, PathHistory> = HashMap::new();
    for path in paths.iter().filter(|path| is_undecided(path)) {
        let history = &path.history;
        let known = together.entry(history.call);
        known
            .and_modify(|all| all.merge(history))
            .or_insert_with(|| history.clone());
    }
    together.retain(|_, all| judge(all).course == PathCourse::Arrives);
    for path in paths.iter_mut() {
        path.is_leaking = is_undecided(path) && together.contains_key(&path.history.call);
    }
}

fn leaking_caller(paths: &[JudgedPath]) -> Option<Culprit> {
    let stacks = |wanted: &dyn Fn(&JudgedPath) -> bool| -> Vec<Stack> {
        let of = paths.iter().filter(|path| wanted(path));
        of.map(|path| path.stack.clone()).collect()
    };
    let leaking = stacks(&|path| path.is_leaking);
    let healthy = stacks(&|path| !path.is_leaking && path.history.is_used_well());
    if healthy.is_empty() {
        return None;
    }
    leaking_caller_frame(&leaking, &healthy).map(Culprit::from)
}

/// What makes two stacks one call path: the line, the call, and the lines that lead there.
type PathKey = (Option<Culprit>, OpenCall, Vec<OwnLine>);

type OwnLine = (Option<crate::Text>, Option<String>, Option<u32>);

/// The application's own lines of a stack.
fn own_lines(stack: &[Frame]) -> Vec<OwnLine> {
    own_frames(stack)
        .map(|frame| (frame.file.clone(), frame.function.clone(), frame.line))
        .collect()
}

#[cfg(test)]
#[path = "site_tests.rs"]
mod tests;
