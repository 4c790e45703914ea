//! One process set to one snapshot: pure.

use std::collections::HashSet;

use bstr::ByteSlice as _;
use fdguard_core::snapshot::{Ceilings, Limits, Process, Via};
use fdguard_core::units::counted;
use fdguard_core::{Detail, Fd, FdEntry, Gap, Pid, Snapshot, Text, Tier};
use jiff::Timestamp;

use super::classify::{self, Setting};
use crate::parse::lsof::{LsofColumn, LsofSet, ProcessSet};
use crate::sqlite;

const REMEDY: &str = "use --via proc";

/// lsof prints numbers from here on by their last three digits.
const CUT_FROM: Fd = 10_000;

/// The runner's knowledge beyond the output.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Circumstances<'a> {
    /// Whether the process is in another network namespace than lsof.
    pub(super) foreign_network: bool,
    /// Whether lsof is known to include close-on-exec in the flags here, so that flags without it
    /// mean that it is not set.
    pub(super) flags_are_whole: bool,
    /// fdguard's own descriptors, opened only to run lsof.
    pub(super) hidden: &'a [Fd],
}

/// lsof's view of one process.
pub(super) fn snapshot(
    pid: Pid,
    set: &ProcessSet<'_>,
    taken_at: Timestamp,
    circumstances: Circumstances<'_>,
) -> Snapshot {
    let mut gaps = Vec::new();
    let rows = Rows::of(set, circumstances.hidden);
    let (fds, count) = match set.file(b"NOFD") {
        Some(refused) => {
            gaps.push(refusal(refused));
            (None, None)
        }
        None => {
            gaps.extend(unread_gap(&rows));
            let entries = table(set, &rows, circumstances, &mut gaps);
            // Numbers without any detail are a count, not a table.
            let readable = !entries.is_empty() || rows.unread.is_empty();
            let count = (rows.rows.len() + rows.unread.len()) as u64;
            (readable.then_some(entries), Some(count))
        }
    };
    gaps.extend(untold());
    Snapshot {
        taken_at,
        tier: if fds.is_some() {
            Tier::Full
        } else {
            Tier::Radar
        },
        via: Via::Lsof,
        process: process(pid, set),
        limits: Limits::default(),
        count,
        table_size: None,
        host: Ceilings::default(),
        fds,
        gaps,
    }
}

fn process(pid: Pid, set: &ProcessSet<'_>) -> Process {
    let number = |letter| {
        set.fields
            .number(letter)
            .and_then(|n| u32::try_from(n).ok())
    };
    let text = |text: Option<std::borrow::Cow<'_, [u8]>>| text.map(|text| Text::from(&*text));
    // The program is the first of the texts; if it may not be read, its type is not known.
    let exe = set
        .file(b"txt")
        .filter(|file| file.get(b't').is_some_and(|kind| kind.ends_with(b"REG")))
        .and_then(|file| text(file.text(b'n')));
    Process {
        pid,
        comm: text(set.fields.text(b'c')).unwrap_or_default(),
        exe,
        uid: number(b'u'),
        ppid: number(b'R'),
        pgid: number(b'g'),
        ..Process::default()
    }
}

/// The rows that are descriptors, by number.
struct Rows<'s, 'a> {
    rows: Vec<(Fd, &'s LsofSet<'a>)>,
    /// How many numbers had to be completed.
    completed: usize,
    /// Descriptors that lsof could not read.
    unread: Vec<Fd>,
}

impl<'s, 'a> Rows<'s, 'a> {
    fn of(set: &'s ProcessSet<'a>, hidden: &[Fd]) -> Self {
        let mut rows: Vec<(Fd, &LsofSet<'_>)> = Vec::with_capacity(set.files.len());
        let (mut completed, mut unread, mut last) = (0, Vec::new(), CUT_FROM - 1);
        for file in &set.files {
            let fd = match file.column() {
                Some(LsofColumn::Number(fd)) => fd,
                Some(LsofColumn::Tail(tail)) => {
                    completed += 1;
                    last = next_with_tail(last, tail);
                    last
                }
                _ => continue,
            };
            if is_unread(file) {
                unread.push(fd);
            } else {
                rows.push((fd, file));
            }
        }
        rows.retain(|(fd, _)| !hidden.contains(fd));
        rows.sort_by_key(|(fd, _)| *fd);
        rows.dedup_by_key(|(fd, _)| *fd);
        Self {
            rows,
            completed,
            unread,
        }
    }
}

/// `n/proc/1/fd/3 (readlink: Permission denied)`, without a type: only the number is known.
fn is_unread(file: &LsofSet<'_>) -> bool {
    file.get(b't').is_none_or(|kind| kind == b"unknown")
        && file.get(b'n').is_some_and(|name| name.ends_with(b")"))
}

/// The lowest number above `last` that ends in these three digits: the rows are in ascending order.
fn next_with_tail(last: Fd, tail: Fd) -> Fd {
    let candidate = last / 1000 * 1000 + tail % 1000;
    if candidate > last {
        candidate
    } else {
        candidate.saturating_add(1000)
    }
}

fn table(
    set: &ProcessSet<'_>,
    rows: &Rows<'_, '_>,
    circumstances: Circumstances<'_>,
    gaps: &mut Vec<Gap>,
) -> Vec<FdEntry> {
    let setting = Setting {
        // A row without any flag has no field for them: the other rows show whether flags, and
        // close-on-exec among them, are reported at all.
        tells_cloexec: set.files.iter().any(|file| {
            file.has_flag(b"CX") || (circumstances.flags_are_whole && file.get(b'G').is_some())
        }),
        foreign_network: circumstances.foreign_network,
    };
    let mut entries: Vec<FdEntry> = rows
        .rows
        .iter()
        .map(|(fd, file)| classify::entry(*fd, file, setting))
        .collect();
    sqlite::classify(&mut entries, &|| None);
    mark_ghosts(&mut entries, &rows.unread);
    gaps.extend(completed_gap(rows.completed));
    gaps.extend(lock_gap(rows));
    gaps.extend(flag_gap(&entries, setting));
    gaps.extend(network_gap(setting));
    entries
}

/// Registrations whose number is no longer open. A reused number cannot be detected here: lsof does
/// not report which file was registered.
fn mark_ghosts(entries: &mut [FdEntry], unread: &[Fd]) {
    let numbers = entries.iter().map(|entry| entry.fd);
    let open: HashSet<Fd> = numbers.chain(unread.iter().copied()).collect();
    for entry in entries {
        if let Detail::Eventpoll(epoll) = &mut entry.detail {
            epoll.ghost_fds = epoll
                .targets
                .iter()
                .copied()
                // Beyond the cut, the numbers of the table are uncertain.
                .filter(|fd| *fd < CUT_FROM && !open.contains(fd))
                .collect();
            epoll.ghosts = Some(epoll.ghost_fds.len() as u64);
        }
    }
}

fn refusal(row: &LsofSet<'_>) -> Gap {
    let text = row.text(b'n').unwrap_or_default();
    let why = text
        .rsplit_once_str(b" (")
        .and_then(|(_, why)| why.strip_suffix(b")"))
        .unwrap_or(b"permission denied");
    Gap::new(
        "the descriptors",
        format!("lsof: {}", why.to_str_lossy()),
        "run as root or as the process's user",
    )
}

fn unread_gap(rows: &Rows<'_, '_>) -> Option<Gap> {
    (!rows.unread.is_empty()).then(|| {
        Gap::new(
            format!(
                "the kinds of {}",
                counted(rows.unread.len() as u64, "descriptor")
            ),
            "lsof lacks permission to read them",
            "run as root, or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
        )
    })
}

fn completed_gap(count: usize) -> Option<Gap> {
    (count > 0).then(|| {
        Gap::new(
            format!(
                "the exact numbers of {} from {CUT_FROM} up",
                counted(count as u64, "descriptor")
            ),
            "lsof prints only their last three digits; fdguard shows the lowest numbers that match",
            REMEDY,
        )
    })
}

fn lock_gap(rows: &Rows<'_, '_>) -> Option<Gap> {
    let numbers: Vec<String> = rows
        .rows
        .iter()
        .filter(|(_, file)| classify::has_partial_lock(file))
        .map(|(fd, _)| fd.to_string())
        .collect();
    (!numbers.is_empty()).then(|| {
        Gap::new(
            format!("the byte-range locks of descriptors {}", numbers.join(", ")),
            "lsof reports a lock but not its range",
            REMEDY,
        )
    })
}

fn flag_gap(entries: &[FdEntry], setting: Setting) -> Option<Gap> {
    (!setting.tells_cloexec && !entries.is_empty()).then(|| {
        Gap::new(
            "close-on-exec",
            "no descriptor has it, or this lsof does not report it",
            REMEDY,
        )
    })
}

fn network_gap(setting: Setting) -> Option<Gap> {
    setting.foreign_network.then(|| {
        Gap::new(
            "addresses and states of IP sockets",
            "the process is in a different network namespace than lsof",
            REMEDY,
        )
    })
}

/// What lsof never reports.
fn untold() -> impl Iterator<Item = Gap> {
    [
        "the limits of the process and the machine, and the table size",
        "start time, arguments, threads and children of the process",
        "the other ends of pipes and sockets, and processes that share files",
        "file positions, lock types, and the state of eventfds, timers, signalfds and watchers",
    ]
    .into_iter()
    .map(|what| Gap::new(what, "lsof does not report them", REMEDY))
}

#[cfg(test)]
mod tests;
