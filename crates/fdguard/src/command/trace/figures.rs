//! What is said of a site in numbers and words: how fast it grows, and what it opens.

use std::collections::HashMap;
use std::time::Duration;

use fdguard_core::{Class, Text};
use fdguard_trace::Site;

use super::joined::Origins;

/// How fast what is open became more, a second; where there are enough of them to tell.
pub(super) fn rate(site: &Site) -> Option<f64> {
    const ENOUGH: usize = 4;
    let times = || site.open.iter().map(|open| open.descriptor.ns);
    let (first, last) = (times().min()?, times().max()?);
    let seconds = Duration::from_nanos(last.saturating_sub(first)).as_secs_f64();
    let is_told = site.open.len() >= ENOUGH && seconds >= 1.0;
    is_told.then(|| (site.open.len() - 1) as f64 / seconds)
}

/// What most of them are, and where these point to when all point to the same.
pub(super) fn what<'p>(site: &Site, process: &'p Origins) -> Option<(&'p Class, Option<&'p Text>)> {
    let known = || {
        site.open
            .iter()
            .filter_map(|open| process.held.get(&open.fd))
    };
    let mut counts: HashMap<_, usize> = HashMap::new();
    for (class, _) in known() {
        *counts.entry(class).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .max_by_key(|(class, count)| (*count, std::cmp::Reverse(*class)));
    let (class, _) = most?;
    let mut targets = known().filter(|held| held.0 == *class).map(|held| &held.1);
    let first = targets.next();
    let is_one = targets.all(|target| Some(target) == first);
    Some((class, first.filter(|_| is_one)))
}

/// How most of them were opened.
pub(super) fn how(site: &Site) -> &'static str {
    let first = site.open.first();
    first.map_or("", |open| open.descriptor.call.name())
}
