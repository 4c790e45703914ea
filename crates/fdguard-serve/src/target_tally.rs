//! What the descriptors of a service refer to, as the history keeps it. Pure.

use std::collections::BTreeMap;

use fdguard_core::Text;
use fdguard_core::timeline::Timeline;

use crate::overview::TargetTally;

/// Targets of a service that are kept at a moment; the others are counted by their class.
const MOST: usize = 64;

/// The descriptors of one process by class and target. A timeline has a bounded number of targets;
/// what has no track of its own is counted without a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TargetTallies(BTreeMap<(String, Option<Text>), u64>);

impl TargetTallies {
    /// Counts what is open now; `None` if the table was never listed.
    pub(crate) fn count(timeline: &Timeline) -> Option<Self> {
        if !timeline.is_listed() {
            return None;
        }
        let mut whole: BTreeMap<String, u64> = BTreeMap::new();
        let mut sums = BTreeMap::new();
        for (_, group) in timeline.groups() {
            let class = group.key.family.to_string();
            let count = u64::from(group.track.count());
            match &group.key.target {
                None => *whole.entry(class).or_default() += count,
                Some(target) => *sums.entry((class, Some(target.clone()))).or_default() += count,
            }
        }
        for ((class, _), count) in &sums {
            let rest = whole.entry(class.clone()).or_default();
            *rest = rest.saturating_sub(*count);
        }
        sums.extend(whole.into_iter().map(|(class, rest)| ((class, None), rest)));
        sums.retain(|_, count| *count > 0);
        Some(Self(sums))
    }

    /// The largest of several processes together, then the rest by class; `None` if none of them
    /// was listed.
    pub(crate) fn largest(all: &[&Self]) -> Option<Vec<TargetTally>> {
        let mut sums: BTreeMap<&(String, Option<Text>), u64> = BTreeMap::new();
        for (key, count) in all.iter().flat_map(|one| &one.0) {
            *sums.entry(key).or_default() += count;
        }
        let (mut named, unnamed): (Vec<_>, Vec<_>) = sums
            .into_iter()
            .partition(|((_, target), _)| target.is_some());
        named.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        let small = named.split_off(named.len().min(MOST));
        let mut rest: BTreeMap<&String, u64> = BTreeMap::new();
        for ((class, _), count) in unnamed.into_iter().chain(small) {
            *rest.entry(class).or_default() += count;
        }
        let named = named
            .into_iter()
            .map(|((class, target), count)| TargetTally {
                class: class.clone(),
                target: target.clone(),
                count,
            });
        let rest = rest.into_iter().map(|(class, count)| TargetTally {
            class: class.clone(),
            target: None,
            count,
        });
        (!all.is_empty()).then(|| named.chain(rest).collect())
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::Text;

    use super::{MOST, TargetTallies};

    fn process(rows: &[(&str, Option<String>, u64)]) -> TargetTallies {
        let row = |(class, target, count): &(&str, Option<String>, u64)| {
            let target = target.as_deref().map(Text::from);
            (((*class).to_owned(), target), *count)
        };
        TargetTallies(rows.iter().map(row).collect())
    }

    #[test]
    fn processes_of_a_service_are_added_up_with_the_largest_first() {
        let log = || Some("/var/log/a".to_owned());
        let one = process(&[("regular", log(), 2), ("pipe", Some("pipe".to_owned()), 9)]);
        let two = process(&[("regular", log(), 40), ("tcp", None, 3)]);
        let all = TargetTallies::largest(&[&one, &two]).unwrap();
        let shown: Vec<String> = all
            .iter()
            .map(|row| {
                let target = row.target.as_ref().map_or("-".into(), Text::to_lossy);
                format!("{} {target} {}", row.class, row.count)
            })
            .collect();
        assert_eq!(shown, ["regular /var/log/a 42", "pipe pipe 9", "tcp - 3"]);
    }

    #[test]
    fn too_many_targets_are_counted_by_class_and_none_is_lost() {
        let many: Vec<_> = (0..200_u64)
            .map(|n| ("regular", Some(format!("/srv/{n}")), n + 1))
            .collect();
        let all = TargetTallies::largest(&[&process(&many)]).unwrap();
        assert_eq!(all.len(), MOST + 1);
        assert_eq!(all[0].count, 200);
        assert_eq!(all[MOST].target, None);
        let sum: u64 = all.iter().map(|row| row.count).sum();
        assert_eq!(sum, (1..=200).sum::<u64>());
    }

    #[test]
    fn what_was_never_listed_is_unknown_and_not_empty() {
        assert_eq!(TargetTallies::largest(&[]), None);
        assert_eq!(
            TargetTallies::count(&fdguard_core::timeline::Timeline::new()),
            None
        );
    }
}
