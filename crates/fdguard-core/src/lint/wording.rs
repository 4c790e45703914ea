//! The phrases that the sentences of several lints share.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::Fd;

/// How many groups a sentence names before it only counts the rest.
const NAMED: usize = 3;

/// Numbers as a person would list them: runs joined, a long tail only counted.
/// `7, 9-12 and 40 more`.
pub(super) fn numbers(fds: &[Fd]) -> String {
    const RUNS: usize = 6;
    let mut sorted = fds.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs: Vec<&[Fd]> = sorted
        .chunk_by(|a, b| a.checked_add(1) == Some(*b))
        .collect();
    let mut parts = Vec::new();
    for run in runs.iter().take(RUNS) {
        match run {
            [one] => parts.push(one.to_string()),
            [first, .., last] => parts.push(format!("{first}-{last}")),
            [] => {}
        }
    }
    let mut text = parts.join(", ");
    let rest: usize = runs.iter().skip(RUNS).map(|run| run.len()).sum();
    if rest > 0 {
        // Writing to a string cannot fail.
        let _ = write!(text, " and {rest} more");
    }
    text
}

/// How often each thing occurs, the most common first, then by name.
pub(super) fn most_common<T: Ord>(things: impl IntoIterator<Item = T>) -> Vec<(T, usize)> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for thing in things {
        *counts.entry(thing).or_default() += 1;
    }
    let mut list: Vec<_> = counts.into_iter().collect();
    list.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    list
}

/// `130 with 10.0.0.7:443, 3 with 10.0.0.8:443`: the largest groups, the rest counted.
pub(super) fn groups(list: &[(String, usize)], preposition: &str) -> String {
    let mut parts: Vec<String> = list
        .iter()
        .take(NAMED)
        .map(|(name, count)| format!("{count} {preposition}{name}"))
        .collect();
    let rest: usize = list.iter().skip(NAMED).map(|(_, count)| count).sum();
    if rest > 0 {
        parts.push(format!("{rest} other"));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::{groups, most_common, numbers};

    #[test]
    fn neighbouring_numbers_become_a_run_and_a_long_tail_is_counted() {
        assert_eq!(numbers(&[9, 7, 8, 12]), "7-9, 12");
        assert_eq!(numbers(&[]), "");
        let scattered: Vec<u32> = (0..20).map(|n| n * 2).collect();
        assert_eq!(numbers(&scattered), "0, 2, 4, 6, 8, 10 and 14 more");
        assert_eq!(numbers(&[u32::MAX, 0]), "0, 4294967295");
    }

    #[test]
    fn the_largest_groups_are_named_and_the_rest_is_counted() {
        let list = most_common(["b", "a", "b", "c", "d"].map(str::to_owned));
        assert_eq!(groups(&list, ""), "2 b, 1 a, 1 c, 1 other");
    }
}
