//! Several snapshots of one process in order: what each step opened and closed, and whether the
//! last one is back to the first.
//!
//! Compared by identity, not by count: a process that closed three old descriptors and opened three
//! new ones has the same count but is not back to its baseline.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::delta::{Delta, delta, same_thing};
use crate::{Class, Fd, FdEntry, Snapshot, Text, collapse};

/// How a process changed over its phases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phases {
    /// From each phase to the next.
    pub steps: Vec<PhaseStep>,
    /// Whether the last is back to the first.
    pub verdict: Return,
    /// Opened since the first phase and still open in the last, the largest group first.
    pub leftover: Vec<PhaseGroup>,
    /// In the first phase but not in the last, the largest group first.
    pub missing: Vec<PhaseGroup>,
}

/// From one phase to the next.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseStep {
    /// What changed.
    pub delta: Delta,
    /// What was opened, by class and target.
    pub opened: Vec<PhaseGroup>,
    /// What was closed, by class and target.
    pub closed: Vec<PhaseGroup>,
}

/// Whether a process is back to its earlier state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Return {
    /// Nothing that was opened since is still open.
    BackToBaseline,
    /// Something is still open.
    NotBackToBaseline,
}

/// Descriptors of one class on one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseGroup {
    /// The class.
    pub class: Class,
    /// What they point at, numbers collapsed.
    pub target: Text,
    /// How many.
    pub count: u64,
    /// Their numbers, ascending.
    pub fds: Vec<Fd>,
    /// For leftovers: the phase, counted from 0, in which the oldest of them first appeared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<usize>,
}

/// Why snapshots cannot be compared as phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPhases {
    /// There are fewer than two.
    TooFew,
    /// This one has no list of descriptors.
    Unlisted(usize),
    /// This one shows another process than the first.
    OtherProcess(usize),
}

impl Phases {
    /// Compares snapshots, given in order.
    pub fn compare(snapshots: &[&Snapshot]) -> Result<Self, NoPhases> {
        let ([first, .., last], false) = (snapshots, snapshots.len() < 2) else {
            return Err(NoPhases::TooFew);
        };
        for (index, snapshot) in snapshots.iter().enumerate() {
            if snapshot.fds.is_none() {
                return Err(NoPhases::Unlisted(index));
            }
            let keys = first.process.key().zip(snapshot.process.key());
            let is_other = keys.map_or(first.process.pid != snapshot.process.pid, |(a, b)| a != b);
            if is_other {
                return Err(NoPhases::OtherProcess(index));
            }
        }
        let between = |a, b| delta(a, b).ok_or(NoPhases::Unlisted(0));
        let steps = snapshots.windows(2).map(|pair| {
            between(pair[0], pair[1]).map(|delta| PhaseStep {
                opened: groups(&delta.opened, |_| None),
                closed: groups(&delta.closed, |_| None),
                delta,
            })
        });
        let whole = between(first, last)?;
        let leftover = groups(&whole.opened, |entry| Some(since(snapshots, entry)));
        Ok(Self {
            steps: steps.collect::<Result<_, _>>()?,
            verdict: if leftover.is_empty() {
                Return::BackToBaseline
            } else {
                Return::NotBackToBaseline
            },
            leftover,
            missing: groups(&whole.closed, |_| None),
        })
    }
}

/// The first phase from which on all phases show this descriptor.
fn since(snapshots: &[&Snapshot], entry: &FdEntry) -> usize {
    let shows = |snapshot: &&&Snapshot| {
        let mut fds = snapshot.fds.iter().flatten();
        fds.any(|other| other.fd == entry.fd && same_thing(other, entry))
    };
    snapshots.len() - snapshots.iter().rev().take_while(shows).count()
}

fn groups(entries: &[FdEntry], since: impl Fn(&FdEntry) -> Option<usize>) -> Vec<PhaseGroup> {
    let mut found: BTreeMap<(&Class, Text), PhaseGroup> = BTreeMap::new();
    for entry in entries {
        let target = Text::from(&*collapse::target(entry));
        let since = since(entry);
        let group = found
            .entry((&entry.class, target.clone()))
            .or_insert_with(|| PhaseGroup {
                class: entry.class.clone(),
                target,
                count: 0,
                fds: Vec::new(),
                since,
            });
        group.count += 1;
        group.fds.push(entry.fd);
        group.since = group.since.min(since);
    }
    let mut list: Vec<PhaseGroup> = found.into_values().collect();
    for group in &mut list {
        group.fds.sort_unstable();
    }
    list.sort_by_key(|group| std::cmp::Reverse(group.count));
    list
}

#[cfg(test)]
mod tests {
    use super::{NoPhases, Phases, Return};
    use crate::TcpState::{CloseWait, Established};
    use crate::testing::{file, radar, snapshot, stdio, tcp};
    use crate::{Class, Fd, FdEntry, Snapshot};

    fn log(fd: Fd, name: &str) -> FdEntry {
        file(fd, Class::Regular, name)
    }

    fn with(more: Vec<FdEntry>) -> Snapshot {
        snapshot([stdio(), more].concat())
    }

    fn phases(snapshots: &[Snapshot]) -> Phases {
        Phases::compare(&snapshots.iter().collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn r14_what_was_opened_and_closed_again_is_back_to_baseline() {
        let work = with(vec![log(5, "/tmp/a"), log(6, "/tmp/b")]);
        let found = phases(&[with(vec![]), work, with(vec![])]);
        assert_eq!(found.verdict, Return::BackToBaseline);
        assert!(found.leftover.is_empty() && found.missing.is_empty());
        assert_eq!(found.steps.len(), 2);
        assert_eq!(found.steps[0].delta.opened.len(), 2);
        assert_eq!(found.steps[1].delta.closed.len(), 2);
    }

    #[test]
    fn r14_an_equal_count_of_other_descriptors_is_not_back_to_baseline() {
        let before = with(vec![log(5, "/tmp/a")]);
        let after = with(vec![log(5, "/tmp/b")]);
        let found = phases(&[before, with(vec![]), after]);
        assert_eq!(found.verdict, Return::NotBackToBaseline);
        assert_eq!(found.leftover[0].fds, [5]);
        assert_eq!(found.missing[0].fds, [5]);
    }

    #[test]
    fn r14_what_is_left_over_is_told_by_class_target_and_phase() {
        let session = |fd, number| log(fd, &format!("/tmp/agent-{number}/log.jsonl"));
        let during = vec![session(5, 101), session(6, 102), log(7, "/tmp/a")];
        let after = vec![session(5, 101), session(6, 102), session(8, 103)];
        let found = phases(&[with(vec![]), with(during), with(after)]);
        assert_eq!(found.leftover.len(), 1);
        let group = &found.leftover[0];
        assert_eq!((group.count, &*group.fds), (3, &[5, 6, 8][..]));
        assert_eq!(group.target.as_str(), Some("/tmp/agent-*/log.jsonl"));
        assert_eq!(group.since, Some(1));
    }

    #[test]
    fn r14_a_number_that_was_free_for_a_phase_is_of_the_later_phase() {
        let held = || with(vec![log(5, "/tmp/a")]);
        let found = phases(&[with(vec![]), held(), with(vec![]), held()]);
        assert_eq!(found.leftover[0].since, Some(3));
    }

    #[test]
    fn r14_a_connection_that_changed_its_state_is_no_leftover() {
        let open = tcp(5, Established, Some("10.0.0.7:443"));
        let half = FdEntry {
            class: Class::Tcp(CloseWait),
            ..open.clone()
        };
        let found = phases(&[with(vec![open]), with(vec![half])]);
        assert_eq!(found.verdict, Return::BackToBaseline);
        assert_eq!(found.steps[0].delta.changed.len(), 1);
    }

    #[test]
    fn r14_what_cannot_be_compared_is_named() {
        let whole = || with(vec![]);
        let (one, two) = (whole(), whole());
        assert_eq!(Phases::compare(&[]), Err(NoPhases::TooFew));
        assert_eq!(Phases::compare(&[&one]), Err(NoPhases::TooFew));
        let blind = radar(3);
        assert_eq!(Phases::compare(&[&one, &blind]), Err(NoPhases::Unlisted(1)));
        let mut other = whole();
        other.process.pid += 1;
        let found = Phases::compare(&[&one, &two, &other]);
        assert_eq!(found, Err(NoPhases::OtherProcess(2)));
    }
}
