//! What was joined, as the values that every output is made from.

use std::collections::BTreeMap;

use fdguard_core::Class;
use fdguard_trace::{Site, Strand};

use super::figures;
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

pub(super) fn holder(process: &Origins) -> Holder<'_> {
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
    let what = figures::what(site, process);
    Place {
        culprit: site.culprit.as_ref(),
        telling: site.telling.as_ref(),
        stack: &site.stack,
        how: oldest.map_or("", |open| open.descriptor.call.name()),
        thread: oldest.map(|open| open.descriptor.tid),
        live: site.open.len() as u64,
        opened: site.opened,
        closed: site.closed,
        per_second: figures::rate(site),
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
