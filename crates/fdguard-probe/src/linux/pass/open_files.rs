//! Numbers that refer to the same open file: duplicates, inherited and received descriptors. They
//! share its position and its flags.

use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::mem::Discriminant;

use fdguard_core::entry::SharedOpenFile;
use fdguard_core::{Class, Detail, Fd, FdEntry, FdHolder, FileId, Mode};
use rustc_hash::FxHashMap;

use super::Context;
use super::peers::listed;
use crate::linux::kcmp;
use crate::linux::table::TableDraft;
use crate::workers;

/// The most numbers that are listed for one open file.
const MOST_LISTED: usize = 8;
/// If more open files than these have the same key, none of them is examined: to tell them apart
/// would take more comparisons than it is worth.
const MOST_FILES: usize = 256;

/// A number that may share its open file with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    holder: FdHolder,
    /// The table, and the place in it.
    table: usize,
    at: usize,
    /// What identifies the open file, if that is known: the kernel's address from a record.
    address: Option<u64>,
}

/// What is the same for all numbers of an open file, and mostly different for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileKey {
    id: FileId,
    mode: Option<Mode>,
    flags: Option<u32>,
    /// All anonymous inodes have one id.
    kind: Discriminant<Detail>,
    /// The number that the kernel gave to an eventfd.
    number: Option<u64>,
}

impl FileKey {
    fn of(entry: &FdEntry) -> Option<Self> {
        let number = match &entry.detail {
            Detail::Eventfd(eventfd) => eventfd.id,
            _ => None,
        };
        Some(Self {
            id: entry.id?,
            mode: entry.mode,
            flags: entry.flags.map(fdguard_core::OpenFlags::bits),
            kind: std::mem::discriminant(&entry.detail),
            number,
        })
    }
}

/// The numbers with one key. Most have only one, which needs no list.
#[derive(Debug)]
struct Group {
    first: Candidate,
    others: Vec<Candidate>,
    /// How many more have the key, each with an open file of its own.
    alone: usize,
}

impl Group {
    fn new(first: Candidate) -> Self {
        Self {
            first,
            others: Vec::new(),
            alone: 0,
        }
    }

    fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

/// Finds them among these tables.
pub(super) fn describe(context: &Context<'_>, tables: &mut [&mut TableDraft]) {
    if !context.probe.real {
        return;
    }
    let groups = groups(tables);
    let compare = |one: FdHolder, other: FdHolder| kcmp::compare(one, other);
    let files = workers::map(&groups, 64, |group| split(group, compare));
    for same in files.iter().flatten() {
        name_each_other(tables, same);
    }
}

/// The numbers with the same key, where there are several.
fn groups(tables: &[&mut TableDraft]) -> Vec<Group> {
    let mut groups: FxHashMap<FileKey, Group> = FxHashMap::default();
    for (index, table) in tables.iter().enumerate() {
        let mut add = |at: usize, address: Option<u64>| {
            let entry = &table.entries[at];
            let Some(key) = FileKey::of(entry) else {
                return;
            };
            let candidate = Candidate {
                holder: FdHolder {
                    pid: table.pid,
                    fd: entry.fd,
                    writes: None,
                },
                table: index,
                at,
                // A socket has one open file, which cannot be opened again.
                address: is_socket(&entry.class).then_some(key.id.ino).or(address),
            };
            match groups.entry(key) {
                Entry::Vacant(group) => drop(group.insert(Group::new(candidate))),
                Entry::Occupied(mut group) => group.get_mut().others.push(candidate),
            }
        };
        if table.by_kernel {
            let candidates = marked(table).into_iter();
            candidates.for_each(|(at, address)| add(at, address));
        } else {
            (0..table.entries.len()).for_each(|at| add(at, None));
        }
    }
    groups.retain(|_, group| !group.others.is_empty());
    if !groups.is_empty() {
        count_alone(tables, &mut groups);
    }
    groups.into_values().collect()
}

fn is_socket(class: &Class) -> bool {
    matches!(
        class,
        Class::Tcp(_) | Class::Udp | Class::Unix | Class::Netlink | Class::Packet | Class::Raw
    )
}

/// Counts the numbers of which the kernel has shown that they have their open file for themselves.
fn count_alone(tables: &[&mut TableDraft], groups: &mut FxHashMap<FileKey, Group>) {
    for table in tables.iter().filter(|table| table.by_kernel) {
        let mut marked = marked(table).into_iter().map(|(at, _)| at).peekable();
        for (at, entry) in table.entries.iter().enumerate() {
            if marked.next_if_eq(&at).is_none()
                && let Some(group) = FileKey::of(entry).and_then(|key| groups.get_mut(&key))
            {
                group.alone += 1;
            }
        }
    }
}

/// The places of the numbers in a table of the kernel whose open files something else refers to,
/// too, or may refer to, ascending; with the addresses of these files.
fn marked(table: &TableDraft) -> Vec<(usize, Option<u64>)> {
    let shared = table.shared.iter().map(|(fd, file)| (*fd, Some(*file)));
    let unknown = table.by_proc.iter().map(|fd| (*fd, None));
    let place = |(fd, address): (Fd, Option<u64>)| {
        let at = table.entries.binary_search_by_key(&fd, |entry| entry.fd);
        Some((at.ok()?, address))
    };
    let mut places: Vec<_> = shared.chain(unknown).filter_map(place).collect();
    places.sort_unstable();
    places
}

/// The numbers of each open file of a group, where there are several.
fn split(
    group: &Group,
    compare: impl Fn(FdHolder, FdHolder) -> Option<Ordering>,
) -> Vec<Vec<Candidate>> {
    let mut by_address: FxHashMap<u64, Vec<Candidate>> = FxHashMap::default();
    let mut unknown = Vec::new();
    for candidate in group.candidates() {
        match candidate.address {
            Some(address) => by_address.entry(address).or_default().push(*candidate),
            None => unknown.push(*candidate),
        }
    }
    let mut files: Vec<Vec<Candidate>> = by_address.into_values().collect();
    if !unknown.is_empty() {
        let known = std::mem::take(&mut files).into_iter();
        for same in known.chain(unknown.into_iter().map(|one| vec![one])) {
            if group.alone + files.len() > MOST_FILES {
                return Vec::new();
            }
            add(&mut files, same, &compare);
        }
    }
    if group.alone + files.len() > MOST_FILES {
        return Vec::new();
    }
    files.retain(|same| same.len() > 1);
    for same in &mut files {
        same.sort_unstable_by_key(|candidate| candidate.holder);
    }
    files
}

/// Puts numbers to their open file, in the order of these. What cannot be compared is left out.
fn add(
    files: &mut Vec<Vec<Candidate>>,
    mut same: Vec<Candidate>,
    compare: impl Fn(FdHolder, FdHolder) -> Option<Ordering>,
) {
    let (mut start, mut end) = (0, files.len());
    while start < end {
        let middle = usize::midpoint(start, end);
        let (Some(one), Some(other)) = (same.first(), files[middle].first()) else {
            return;
        };
        match compare(one.holder, other.holder) {
            Some(Ordering::Equal) => return files[middle].append(&mut same),
            Some(Ordering::Less) => end = middle,
            Some(Ordering::Greater) => start = middle + 1,
            None => return,
        }
    }
    files.insert(start, same);
}

fn name_each_other(tables: &mut [&mut TableDraft], same: &[Candidate]) {
    for (place, candidate) in same.iter().enumerate() {
        let others = same[..place].iter().chain(&same[place + 1..]);
        let others = others.map(|other| other.holder);
        let (shared_with, shared_more) = listed(others, same.len() - 1, MOST_LISTED);
        let entry = tables
            .get_mut(candidate.table)
            .and_then(|table| table.entries.get_mut(candidate.at));
        if let Some(entry) = entry {
            entry.open_file = Some(Box::new(SharedOpenFile {
                shared_with,
                shared_more,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use fdguard_core::FdHolder;

    use super::{Candidate, Group, MOST_FILES, split};

    fn candidate(pid: u32, fd: u32, address: Option<u64>) -> Candidate {
        Candidate {
            holder: FdHolder {
                pid,
                fd,
                writes: None,
            },
            table: 0,
            at: 0,
            address,
        }
    }

    fn group(candidates: &[Candidate], alone: usize) -> Group {
        Group {
            first: candidates[0],
            others: candidates[1..].to_vec(),
            alone,
        }
    }

    fn numbers(files: &[Vec<Candidate>]) -> Vec<Vec<(u32, u32)>> {
        let pair = |it: &Candidate| (it.holder.pid, it.holder.fd);
        let mut all: Vec<Vec<_>> = files
            .iter()
            .map(|same| same.iter().map(pair).collect())
            .collect();
        all.sort();
        all
    }

    /// Open files by the tens of the number; number 99 is closed.
    fn by_tens(one: FdHolder, other: FdHolder) -> Option<Ordering> {
        let is_open = one.fd != 99 && other.fd != 99;
        is_open.then(|| (one.fd / 10).cmp(&(other.fd / 10)))
    }

    #[test]
    fn the_numbers_of_each_open_file_are_together() {
        let of = [(7, 31), (7, 12), (8, 30), (7, 99), (9, 11), (7, 50)];
        let by_order = of.map(|(pid, fd)| candidate(pid, fd, None));
        let expected = [vec![(7, 12), (9, 11)], vec![(7, 31), (8, 30)]];
        assert_eq!(numbers(&split(&group(&by_order, 0), by_tens)), expected);
        let by_address = of.map(|(pid, fd)| candidate(pid, fd, Some(u64::from(fd / 10))));
        let refuse = |_, _| panic!("addresses are enough");
        assert_eq!(numbers(&split(&group(&by_address, 0), refuse)), expected);
    }

    #[test]
    fn one_without_an_address_is_compared_with_each_file() {
        let mixed = [
            candidate(7, 11, Some(5)),
            candidate(8, 12, None),
            candidate(8, 13, Some(5)),
            candidate(8, 21, Some(6)),
        ];
        let compared = Cell::new(0);
        let compare = |one, other| {
            compared.set(compared.get() + 1);
            by_tens(one, other)
        };
        let files = split(&group(&mixed, 0), compare);
        assert_eq!(numbers(&files), [[(7, 11), (8, 12), (8, 13)]]);
        assert!(compared.get() <= 3, "{compared:?}");
    }

    /// Whether or not the kernel has shown the addresses: both tiers say the same.
    #[test]
    fn many_files_with_one_key_are_not_examined() {
        let most = u32::try_from(MOST_FILES).unwrap();
        let pairs = |files: u32, address: fn(u32) -> Option<u64>| {
            let numbers = (0..files * 10).filter(|fd| fd % 10 < 2 && *fd != 99);
            let all: Vec<_> = numbers.map(|fd| candidate(7, fd, address(fd))).collect();
            group(&all, 0)
        };
        let shown = |fd| Some(u64::from(fd / 10));
        for address in [shown, |_| None] {
            let found = |group: &Group| split(group, by_tens).len();
            assert_eq!(found(&pairs(most, address)), MOST_FILES);
            assert_eq!(found(&pairs(most + 1, address)), 0);
            let mut others = pairs(10, address);
            others.alone = MOST_FILES - 10;
            assert_eq!(found(&others), 10);
            others.alone += 1;
            assert_eq!(found(&others), 0);
        }
    }
}
