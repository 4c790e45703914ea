//! Other holders of the same pipes, sockets and databases, and the holders of the other ends.

use std::collections::HashSet;

use fdguard_core::detail::PipeEnd;
use fdguard_core::{Class, Detail, FdEntry, FdHolder, Pid};
use smallvec::SmallVec;

use super::Context;
use crate::linux::borrow::Borrower;
use crate::linux::files;
use crate::linux::gaps::peers_gap;
use crate::linux::kernel::search::Glimpse;
use crate::linux::search::{Holdings, Interest, Thing};
use crate::linux::table::TableDraft;
use crate::workers;

/// The most holders listed for one object: every process may have a shell's pipe open.
const MOST_LISTED: usize = 32;
/// From this many descriptors on, a second core saves more than it costs.
const WORTH_A_THREAD: usize = 4096;

/// Searches every other process for what these have open, and adds what was found.
pub(super) fn describe(context: &Context<'_>, tables: &mut [&mut TableDraft]) {
    let holdings = find_holders(context, tables);
    if let [only] = tables {
        let (instances, watches) = inotify_use(&only.entries);
        if instances > 0 && holdings.unread == 0 {
            let all = (instances + holdings.inotify.0, watches + holdings.inotify.1);
            context.inotify.get_or_init(|| all);
        }
    }
    if let [only] = tables {
        let pid = only.pid;
        workers::for_each(&mut only.entries, 1024, |entry| {
            describe_entry(&holdings, pid, entry);
        });
    } else {
        workers::for_each(tables, 16, |table| {
            let pid = table.pid;
            let entries = table.entries.iter_mut();
            entries.for_each(|entry| describe_entry(&holdings, pid, entry));
        });
    }
    workers::for_each(tables, 16, |table| {
        if context.probe.real {
            settle_widowed(table);
        }
        let gap = peers_gap(&holdings, table);
        table.gaps.extend(gap);
    });
}

fn find_holders(context: &Context<'_>, tables: &[&mut TableDraft]) -> Holdings {
    let probe = context.probe;
    let mounts = |who: &str| files::read_link(&probe.proc, format!("{who}/ns/mnt")).ok();
    let ours = mounts("self");
    let is_near = |pid: Pid| ours.is_some() && mounts(&pid.to_string()) == ours;
    let (mut interest, mut holdings) = own_things(tables, is_near);
    interest.mounts.clone_from(&ours);
    // A user's inotify use matters for a single process that watches files.
    if let [only] = tables
        && inotify_use(&only.entries).0 > 0
    {
        interest.inotify_of = context.user;
    }
    if !interest.is_empty() {
        let known: HashSet<Pid> = tables.iter().map(|table| table.pid).collect();
        let mut others = context.all_pids().to_vec();
        others.retain(|pid| !known.contains(pid) && probe.holds_something(*pid));
        let may_include = |glimpse: Glimpse<'_>| interest.may_include(glimpse);
        let kernel = context.kernel.as_ref();
        if let Some(kept) =
            kernel.and_then(|kernel| probe.keep_holders(kernel, &others, may_include))
        {
            others = kept;
        }
        holdings.absorb(probe.search(&others, &interest, context.threads));
    }
    // Hidden processes may hold anything.
    holdings.unread += u64::from(probe.hides);
    holdings.sort();
    holdings
}

/// What the processes themselves have open: what others may hold, too, and who holds it. Both take
/// about as long: of many descriptors each is found on a core of its own.
fn own_things(
    tables: &[&mut TableDraft],
    is_near: impl Fn(Pid) -> bool + Sync,
) -> (Interest, Holdings) {
    let count = tables.iter().map(|table| table.entries.len()).sum();
    let interest = || {
        let mut interest = Interest::with_room(count);
        tables
            .iter()
            .for_each(|table| interest.add(table, &is_near));
        interest
    };
    let aside = (count >= WORTH_A_THREAD).then_some(interest);
    let (interest_aside, holdings) = workers::beside(aside, || {
        let mut holdings = Holdings::with_room(count);
        tables
            .iter()
            .for_each(|table| holdings.add(table, &is_near));
        holdings
    });
    (interest_aside.unwrap_or_else(interest), holdings)
}

/// inotify instances and watches among these descriptors.
fn inotify_use(entries: &[FdEntry]) -> (u64, u64) {
    let add = |sum: (u64, u64), entry: &FdEntry| match (&entry.class, &entry.detail) {
        (Class::Inotify, Detail::Watcher(watcher)) => (sum.0 + 1, sum.1 + watcher.watches),
        _ => sum,
    };
    entries.iter().fold((0, 0), add)
}

/// Adds to a descriptor its other holders and the holders of its other end.
fn describe_entry(holdings: &Holdings, pid: Pid, entry: &mut FdEntry) {
    if let Some(side) = Thing::pty_side(entry)
        && holdings.was_near(pid)
    {
        describe_pty(holdings, pid, entry, &side);
    }
    let Some(thing) = Thing::of(entry) else {
        return;
    };
    match &mut entry.detail {
        Detail::Pipe(pipe) => (pipe.peer, pipe.peer_more) = other_end(holdings, &thing),
        Detail::Unix(unix) => {
            if let Some(peer) = &mut unix.peer {
                (peer.holders, peer.holders_more) = of_socket(holdings, peer.ino);
            }
        }
        Detail::Inet(inet) => {
            if let Some(peer) = &mut inet.peer {
                (peer.holders, peer.holders_more) = of_socket(holdings, peer.ino);
            }
        }
        _ => {}
    }
    describe_sharing(holdings, pid, entry, &thing);
}

/// The holders of the other side of a pseudo-terminal, and the other holders of its master.
fn describe_pty(holdings: &Holdings, pid: Pid, entry: &mut FdEntry, side: &Thing) {
    let (others, _) = other_end(holdings, side);
    match &mut entry.detail {
        Detail::Pty(pty) => pty.peer = others.unwrap_or_default(),
        Detail::File(file) => file.peer = others.unwrap_or_default(),
        _ => {}
    }
    // Every process in a terminal has it open: only the holder of the master matters.
    if matches!(side, Thing::PtyMaster(_)) {
        describe_sharing(holdings, pid, entry, side);
    }
}

/// Adds the other holders of the same thing.
fn describe_sharing(holdings: &Holdings, pid: Pid, entry: &mut FdEntry, thing: &Thing) {
    let all = holdings.of(thing);
    let before = &all[..all.partition_point(|holder| holder.pid < pid)];
    let after = &all[all.partition_point(|holder| holder.pid <= pid)..];
    let others = before.iter().chain(after);
    (entry.shared_with, entry.shared_more) =
        listed(others.copied(), before.len() + after.len(), MOST_LISTED);
}

fn of_socket(holdings: &Holdings, ino: u64) -> (Vec<FdHolder>, u64) {
    let all = holdings.of(&Thing::Socket(ino));
    listed(all.iter().copied(), all.len(), MOST_LISTED)
}

/// Holders of the opposite end; unknown if none was found and some process could not be read.
fn other_end(holdings: &Holdings, thing: &Thing) -> (Option<Vec<FdHolder>>, u64) {
    let opposites = opposites(thing);
    if opposites.is_empty() {
        return (None, 0);
    }
    let lists = opposites.iter().map(|thing| holdings.of(thing));
    let total = lists.clone().map(<[FdHolder]>::len).sum();
    let certain = total > 0 || holdings.unread == 0;
    let (list, more) = listed(lists.flatten().copied(), total, MOST_LISTED);
    (certain.then_some(list), more)
}

/// The opposite ends; none for objects without ends.
fn opposites(thing: &Thing) -> SmallVec<[Thing; 3]> {
    let ends = |end: PipeEnd| match end {
        PipeEnd::Read => &[PipeEnd::Write, PipeEnd::Both][..],
        PipeEnd::Write => &[PipeEnd::Read, PipeEnd::Both],
        PipeEnd::Both => &[PipeEnd::Read, PipeEnd::Write, PipeEnd::Both],
    };
    match thing {
        Thing::PtyMaster(index) => SmallVec::from_iter([Thing::PtySlave(*index)]),
        Thing::PtySlave(index) => SmallVec::from_iter([Thing::PtyMaster(*index)]),
        Thing::Pipe(ino, Some(end)) => {
            let ends = ends(*end).iter();
            ends.map(|end| Thing::Pipe(*ino, Some(*end))).collect()
        }
        Thing::Path(path, Some(end)) => {
            let ends = ends(*end).iter();
            ends.map(|end| Thing::Path(path.clone(), Some(*end)))
                .collect()
        }
        _ => SmallVec::new(),
    }
}

/// If an unreadable process could hold the other end of a pipe, the pipe itself is queried.
fn settle_widowed(table: &mut TableDraft) {
    let mut borrower = None;
    for entry in &mut table.entries {
        let Detail::Pipe(pipe) = &mut entry.detail else {
            continue;
        };
        if pipe.peer.is_some() || pipe.end.is_none() || entry.class != Class::Pipe {
            continue;
        }
        let Some(id) = entry.id else { continue };
        let borrower = borrower.get_or_insert_with(|| Borrower::new(table.pid));
        let is_widowed = borrower
            .as_ref()
            .and_then(|borrower| borrower.is_widowed(entry.fd, id.ino));
        if is_widowed == Some(true) {
            pipe.peer = Some(Vec::new());
        }
    }
}

/// The holders, ascending, and how many are omitted. If there are too many, each process is named
/// once before any is named twice: the holder matters more than the number of descriptors.
pub(super) fn listed(
    holders: impl Iterator<Item = FdHolder>,
    total: usize,
    most: usize,
) -> (Vec<FdHolder>, u64) {
    let list: Vec<FdHolder> = if total <= most {
        holders.collect()
    } else {
        let mut last = None;
        let first_of_each = |holder: &FdHolder| last.replace(holder.pid) != Some(holder.pid);
        holders.filter(first_of_each).take(most).collect()
    };
    let more = total - list.len();
    (list, more as u64)
}

#[cfg(test)]
mod tests {
    use fdguard_core::FdHolder;

    use super::{MOST_LISTED, listed};

    fn holder(pid: u32, fd: u32) -> FdHolder {
        FdHolder {
            pid,
            fd,
            writes: None,
        }
    }

    #[test]
    fn a_few_holders_are_all_listed() {
        let few = [holder(7, 3), holder(7, 4), holder(9, 1)];
        assert_eq!(listed(few.into_iter(), 3, MOST_LISTED), (few.to_vec(), 0));
    }

    #[test]
    fn of_many_holders_every_process_is_named_before_one_is_named_twice() {
        let many = (0..50)
            .map(|fd| holder(7, fd))
            .chain([holder(9, 1), holder(12, 2)]);
        let (list, more) = listed(many, 52, MOST_LISTED);
        assert_eq!(list, [holder(7, 0), holder(9, 1), holder(12, 2)]);
        assert_eq!(more, 49);
        let crowd = (0..100).map(|pid| holder(pid, 0));
        assert_eq!(listed(crowd, 100, MOST_LISTED).0.len(), MOST_LISTED);
    }
}
