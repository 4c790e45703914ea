//! What was joined, as the values that every output is made from.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use fdguard_core::{Class, Text};
use fdguard_trace::{Site, Strand};

use super::joined::{Joined, Origins};
use crate::report::trace::{Holder, Place, Seen, Way};

/// Everything that is still open, by place.
pub(super) fn seen(joined: &Joined) -> Seen<'_> {
    Seen {
        diagnosis: &joined.diagnosis,
        holders: joined.processes.iter().map(holder).collect(),
    }
}

/// The stacks that left nothing open, beside those.
pub(super) fn add_spent<'a>(seen: &mut Seen<'a>, spent: &'a [(u32, Vec<Strand>)]) {
    for (pid, strands) in spent {
        let ways = strands.iter().map(|strand| Way {
            stack: &strand.stack,
            live: Vec::new(),
            opened: strand.opened,
            closed: strand.closed,
        });
        let mut holders = seen.holders.iter_mut();
        if let Some(holder) = holders.find(|one| one.pid == *pid) {
            holder.spent = ways.collect();
        }
    }
}

fn holder(process: &Origins) -> Holder<'_> {
    let places = process.sites.iter().map(|site| place(site, process));
    Holder {
        pid: process.pid,
        comm: &process.comm,
        places: places.collect(),
        spent: Vec::new(),
        curves: process.curves.as_ref(),
    }
}

fn place<'a>(site: &'a Site, process: &'a Origins) -> Place<'a> {
    let oldest = site.open.iter().min_by_key(|open| open.descriptor.ns);
    let what = what(site, &process.held);
    Place {
        culprit: site.culprit.as_ref(),
        stack: &site.stack,
        how: oldest.map_or("", |open| open.descriptor.how.name()),
        thread: oldest.map(|open| open.descriptor.tid),
        live: site.open.len() as u64,
        opened: site.opened,
        closed: site.closed,
        per_second: per_second(site),
        oldest: site.oldest_age(process.now),
        class: what.map(|(class, _)| class),
        target: what.and_then(|(_, target)| target),
        ways: site.strands.iter().map(|one| way(one, process)).collect(),
    }
}

fn way<'a>(strand: &'a Strand, process: &'a Origins) -> Way<'a> {
    let mut live: BTreeMap<Option<&Class>, u64> = BTreeMap::new();
    for fd in &strand.fds {
        let class = process.held.get(fd).map(|(class, _)| class);
        *live.entry(class).or_default() += 1;
    }
    Way {
        stack: &strand.stack,
        live: live.into_iter().collect(),
        opened: strand.opened,
        closed: strand.closed,
    }
}

/// How fast they became more, where there are enough to tell.
fn per_second(site: &Site) -> Option<f64> {
    const ENOUGH: usize = 4;
    let times = || site.open.iter().map(|open| open.descriptor.ns);
    let (first, last) = (times().min()?, times().max()?);
    let seconds = Duration::from_nanos(last.saturating_sub(first)).as_secs_f64();
    let is_enough = site.open.len() >= ENOUGH && seconds >= 1.0;
    is_enough.then(|| (site.open.len() - 1) as f64 / seconds)
}

/// What most of them are, and what all of those point to where it is the same.
fn what<'a>(
    site: &Site,
    held: &'a HashMap<u32, (Class, Text)>,
) -> Option<(&'a Class, Option<&'a Text>)> {
    let known = || site.open.iter().filter_map(|open| held.get(&open.fd));
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
    Some((
        class,
        first.filter(|first| targets.all(|one| one == *first)),
    ))
}
