//! Which descriptors rise: as narrow as the evidence allows.

use std::collections::HashMap;

use crate::judge::{Judgement, Verdict};
use crate::slope::Slope;
use crate::timeline::{LiveFd, Timeline, TrackGroup};
use crate::{Class, Text};

/// More leaking targets of one family than this are reported as one.
const MOST_TARGETS: usize = 4;

/// A group of descriptors that rises.
#[derive(Clone, Debug, PartialEq)]
pub struct RisingGroup {
    /// The judgement.
    pub judgement: Judgement,
    /// The class of most of them; absent where they could not be listed.
    pub class: Option<Class>,
    /// What they refer to, numbers collapsed; absent where they have nothing in common.
    pub target: Option<Text>,
    /// How many there are.
    pub count: u64,
    /// How fast their number grows.
    pub slope: Option<Slope>,
    /// Age in seconds of the oldest that was opened during the watch.
    pub oldest: Option<f64>,
}

/// Those with this verdict. A target that rises is named; a family is named when its targets do not
/// explain it.
#[must_use]
pub fn rising_groups(
    timeline: &Timeline,
    judgements: &[Judgement],
    wanted: Verdict,
) -> Vec<RisingGroup> {
    if !timeline.is_listed() {
        return judgements
            .first()
            .filter(|all| all.verdict == wanted)
            .map(|all| blind(timeline, all))
            .into_iter()
            .collect();
    }
    let groups: HashMap<usize, &TrackGroup> = timeline.groups().collect();
    let of_group = |judgement: &&Judgement| judgement.group.and_then(|at| groups.get(&at).copied());
    let rising: Vec<(&Judgement, &TrackGroup)> = judgements
        .iter()
        .filter(|judgement| judgement.verdict == wanted)
        .filter_map(|judgement| Some((judgement, of_group(&judgement)?)))
        // Protection releases its placeholders on demand.
        .filter(|(_, group)| !group.key.family.is_of_fdguard())
        .collect();
    let mut found = Vec::new();
    let families = rising
        .iter()
        .filter(|(_, group)| group.key.target.is_none());
    for (judgement, family) in families {
        let targets: Vec<_> = targets_of(&rising, family).collect();
        let explained: u64 = targets.iter().map(|(target, _)| target.rise).sum();
        let is_explained = 10 * explained >= 6 * judgement.rise;
        if !is_explained || targets.len() > MOST_TARGETS {
            found.push(culprit(timeline, judgement));
        } else {
            found.extend(targets.iter().map(|(target, _)| culprit(timeline, target)));
        }
    }
    // A target may rise although its family as a whole hides it.
    for (judgement, target) in rising
        .iter()
        .filter(|(_, group)| group.key.target.is_some())
    {
        let family_rises = rising
            .iter()
            .any(|(_, group)| group.key.target.is_none() && group.key.family == target.key.family);
        if !family_rises {
            found.push(culprit(timeline, judgement));
        }
    }
    found.sort_by_key(|one| std::cmp::Reverse(one.judgement.rise));
    found
}

fn targets_of<'a>(
    rising: &'a [(&'a Judgement, &'a TrackGroup)],
    family: &'a TrackGroup,
) -> impl Iterator<Item = &'a (&'a Judgement, &'a TrackGroup)> {
    rising
        .iter()
        .filter(|(_, group)| group.key.target.is_some() && group.key.family == family.key.family)
}

/// Only the count is known.
fn blind(timeline: &Timeline, judgement: &Judgement) -> RisingGroup {
    RisingGroup {
        judgement: judgement.clone(),
        class: None,
        target: None,
        count: timeline.count().unwrap_or(0),
        slope: judgement.slope,
        oldest: None,
    }
}

fn culprit(timeline: &Timeline, judgement: &Judgement) -> RisingGroup {
    let group = judgement.group.unwrap_or(usize::MAX);
    let members: Vec<&LiveFd> = timeline.members(group).map(|(_, held)| held).collect();
    let new: Vec<&LiveFd> = members
        .iter()
        .copied()
        .filter(|held| held.since.is_some())
        .collect();
    let shown = if new.is_empty() { &members } else { &new };
    let since = new.iter().filter_map(|held| held.since);
    let oldest = since.min_by(f64::total_cmp);
    let key = timeline.groups().find(|(at, _)| *at == group);
    let target = key.and_then(|(_, group)| group.key.target.clone());
    RisingGroup {
        judgement: judgement.clone(),
        class: most_common(shown),
        target: target.or_else(|| common_target(shown)),
        count: members.len() as u64,
        slope: judgement.slope,
        oldest: oldest.map(|since| timeline.now() - since),
    }
}

/// The class of most of these; of equals the first in the order of classes.
pub(crate) fn most_common(held: &[&LiveFd]) -> Option<Class> {
    let mut counts: HashMap<&Class, usize> = HashMap::new();
    for held in held {
        *counts.entry(&held.class).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .max_by(|a, b| (a.1, b.0).cmp(&(b.1, a.0)));
    most.map(|(class, _)| class.clone())
}

/// The common beginning of many different targets, up to a whole component of a path.
fn common_target(held: &[&LiveFd]) -> Option<Text> {
    let mut targets = held.iter().map(|held| held.target.as_bytes());
    let first = targets.next()?;
    let mut is_one = true;
    let common = targets.fold(first.len(), |length, target| {
        is_one &= first == target;
        let same = first.iter().zip(target).take_while(|(a, b)| a == b);
        length.min(same.count())
    });
    if is_one {
        return Some(Text::from(first));
    }
    let slash = first[..common].iter().rposition(|byte| *byte == b'/')?;
    (slash > 0).then(|| Text::from([&first[..=slash], b"*"].concat()))
}

#[cfg(test)]
mod tests {
    use super::{RisingGroup, rising_groups};
    use crate::judge::{Verdict, judge};
    use crate::testing::watch_script::{WatchScript, leak, watched};
    use crate::{Class, TcpState};

    fn leaking(told: &WatchScript) -> Vec<RisingGroup> {
        let timeline = told.timeline();
        rising_groups(&timeline, &judge(&timeline), Verdict::Leaking)
    }

    fn named(told: &WatchScript) -> Vec<(Option<Class>, Option<String>)> {
        let named = |one: RisingGroup| {
            let target = one.target.map(|target| target.to_lossy().into_owned());
            (one.class, target)
        };
        leaking(told).into_iter().map(named).collect()
    }

    #[test]
    fn r13_the_target_is_named_where_it_explains_the_rise() {
        let told = leak(&Class::Regular, "/srv/sessions/41.log", 80);
        let target = Some("/srv/sessions/*.log".to_owned());
        assert_eq!(named(&told), [(Some(Class::Regular), target)]);
        let found = leaking(&told);
        assert_eq!(found[0].count, 80);
        assert_eq!(
            found[0].oldest,
            Some(78.0),
            "the first look's are as old as the watch"
        );
    }

    #[test]
    fn r13_many_targets_are_told_by_what_they_have_in_common() {
        let told = watched(|t| {
            t.looks(1);
            for (index, letter) in ('a'..='z').chain('a'..='z').cycle().take(80).enumerate() {
                let name = format!("/srv/{letter}{}", "x".repeat(1 + index));
                t.open(Class::Directory, &name, 1);
                t.looks(1);
            }
        });
        let common = Some("/srv/*".to_owned());
        assert_eq!(named(&told), [(Some(Class::Directory), common)]);
    }

    #[test]
    fn a_name_that_others_begin_with_is_not_what_they_share() {
        let told = watched(|t| {
            t.looks(1);
            for index in 0..80 {
                t.open(Class::Directory, &format!("/srv/a{}", "b".repeat(index)), 1);
                t.looks(1);
            }
        });
        let common = Some("/srv/*".to_owned());
        assert_eq!(named(&told), [(Some(Class::Directory), common)]);
    }

    #[test]
    fn r13_a_socket_is_told_by_the_state_that_most_are_in() {
        let state = Class::Tcp(TcpState::CloseWait);
        let told = leak(&state, "10.0.0.7:443", 80);
        assert_eq!(named(&told)[0].0, Some(state));
    }

    #[test]
    fn r13_of_two_that_leak_the_larger_comes_first() {
        let told = watched(|t| {
            t.looks(1);
            for _ in 0..80 {
                t.open(Class::Pidfd, "pid 1", 1);
                t.open(Class::Pipe, "pipe:[7]", 3);
                t.looks(1);
            }
        });
        let classes: Vec<_> = named(&told).into_iter().map(|(class, _)| class).collect();
        assert_eq!(classes, [Some(Class::Pipe), Some(Class::Pidfd)]);
    }

    #[test]
    fn r13_nothing_is_named_where_nothing_rises_or_nobody_could_look() {
        let still = watched(|t| {
            t.open(Class::Regular, "/srv/a", 10);
            t.looks(80);
        });
        assert_eq!(named(&still), []);
        let blind = watched(|t| {
            t.blind();
            t.drip(&Class::Pipe, "pipe:[7]", 80);
        });
        assert_eq!(named(&blind), [(None, None)]);
    }
}
