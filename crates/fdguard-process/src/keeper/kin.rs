//! The living descendants of the keeper, found through `/proc` in memory of fixed size.

use std::mem::{self, MaybeUninit};
use std::os::fd::OwnedFd;

use fdguard_proc::ProcKey;
use fdguard_proc::children::ChildPids;
use fdguard_proc::stat::ProcStat;
use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};
use rustix::io::{Errno, read};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::name::Name;
use crate::sys;

/// More members than this are not signalled one by one; KILL still reaches them all, level by
/// level.
const MOST: usize = 16_384;
/// Longer ancestries are not followed.
const DEEPEST: usize = 64;

/// Memory that the owner allocates before the fork.
#[derive(Debug)]
pub(crate) struct Room {
    pids: Vec<u32>,
    bytes: Vec<u8>,
    /// Processes that were already signalled, sorted by pid and start.
    asked: Vec<ProcKey>,
    met: Vec<ProcKey>,
}

impl Room {
    pub(crate) fn new() -> Self {
        Self {
            pids: vec![0; MOST],
            bytes: vec![0; 4096],
            asked: Vec::with_capacity(MOST),
            met: Vec::with_capacity(MOST),
        }
    }
}

/// A list in that memory.
struct List<'r> {
    pids: &'r mut [u32],
    length: usize,
}

impl List<'_> {
    fn push(&mut self, pid: u32) {
        if let Some(room) = self.pids.get_mut(self.length) {
            *room = pid;
            self.length += 1;
        }
    }

    fn at(&self, index: usize) -> Option<u32> {
        self.pids.get(..self.length)?.get(index).copied()
    }
}

/// Calls `act` for each descendant of `keeper`, its children first, and passes whether it is a
/// child.
pub(super) fn each(keeper: u32, room: &mut Room, act: &mut dyn FnMut(u32, bool)) {
    walk(keeper, &mut room.pids, &mut room.bytes, act);
}

/// Forgets which processes were signalled.
pub(super) fn forget_asked(room: &mut Room) {
    room.asked.clear();
}

/// Calls `act` for each living descendant that it was not called for since [`forget_asked`].
pub(super) fn each_unasked(keeper: u32, room: &mut Room, act: &mut dyn FnMut(u32, bool)) {
    let Room {
        pids,
        bytes,
        asked,
        met,
    } = room;
    met.clear();
    walk(keeper, pids, bytes, &mut |pid, is_child| {
        let living = stat(pid, |stat| (!stat.has_ended()).then(|| stat.key(pid)));
        let Some(member) = living.flatten() else {
            return;
        };
        // Beyond its capacity a list would allocate.
        if met.len() < met.capacity() {
            met.push(member);
        }
        if asked.binary_search(&member).is_err() {
            act(pid, is_child);
        }
    });
    met.sort_unstable();
    mem::swap(asked, met);
}

fn walk(keeper: u32, pids: &mut [u32], bytes: &mut [u8], act: &mut dyn FnMut(u32, bool)) {
    let mut list = List { pids, length: 0 };
    children(
        Name::of_thread(keeper, keeper, "/children"),
        bytes,
        &mut |pid| list.push(pid),
    );
    let own = list.length;
    let mut index = 0;
    while let Some(pid) = list.at(index) {
        act(pid, index < own);
        threads(pid, &mut |thread| {
            let name = Name::of_thread(pid, thread, "/children");
            children(name, bytes, &mut |child| list.push(child));
        });
        index += 1;
    }
}

/// Calls `act` for each child of the keeper.
pub(super) fn each_child(keeper: u32, room: &mut Room, act: &mut dyn FnMut(u32)) {
    let name = Name::of_thread(keeper, keeper, "/children");
    children(name, &mut room.bytes, act);
}

/// How many descendants are alive.
pub(super) fn count(keeper: u32, room: &mut Room) -> u32 {
    let mut count = 0_u32;
    each(keeper, room, &mut |pid, _| {
        if stat(pid, |stat| !stat.has_ended()) == Some(true) {
            count = count.saturating_add(1);
        }
    });
    count
}

/// Sends a signal to a descendant, never to an unrelated process.
pub(super) fn send(keeper: u32, pid: u32, is_child: bool, signal: i32) -> Result<(), Errno> {
    if is_child {
        return sys::signal_child(pid, signal);
    }
    sys::signal_pidfd(&pin_descendant(keeper, pid)?, signal)
}

/// A pidfd of a living descendant, never of an unrelated process.
pub(crate) fn pin_descendant(keeper: u32, pid: u32) -> Result<OwnedFd, Errno> {
    let pidfd = open_pidfd(pid)?;
    if descends(pid, keeper) {
        Ok(pidfd)
    } else {
        Err(Errno::SRCH)
    }
}

/// Sends a signal and CONT to a descendant: a stopped one does not act on the first alone.
pub(super) fn signal(keeper: u32, pid: u32, is_child: bool, signal: i32) {
    let send = |signal| send(keeper, pid, is_child, signal);
    // A process that is gone needs no signal; one that cannot be signalled (another user's) is met
    // again by KILL, and `Empty` is not reported.
    if send(signal).is_ok() && signal != libc::SIGCONT {
        let _gone = send(libc::SIGCONT);
    }
}

pub(super) fn open_pidfd(pid: u32) -> Result<OwnedFd, Errno> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pidfd_open(pid.ok_or(Errno::SRCH)?, PidfdFlags::empty())
}

/// Whether two readings of the ancestry of `pid` agree and both lead to the keeper.
fn descends(pid: u32, keeper: u32) -> bool {
    let mut way = [0; DEEPEST];
    let length = ancestors(pid, keeper, |index, parent| {
        if let Some(room) = way.get_mut(index) {
            *room = parent;
        }
        true
    });
    let again = |index, parent| way.get(index) == Some(&parent);
    length.is_some() && length == ancestors(pid, keeper, again)
}

/// Follows the parents of `pid` up to the keeper while `same` is true; returns how many there are.
fn ancestors(pid: u32, keeper: u32, mut same: impl FnMut(usize, u32) -> bool) -> Option<usize> {
    let mut at = pid;
    for index in 0..DEEPEST {
        let (parent, has_ended) = stat(at, |stat| (stat.ppid, stat.has_ended()))?;
        if (index == 0 && has_ended) || !same(index, parent) {
            return None;
        }
        if parent == keeper {
            return Some(index);
        }
        at = parent;
    }
    None
}

/// What `of` takes from the stat line.
pub(super) fn stat<T>(pid: u32, of: impl FnOnce(&ProcStat<'_>) -> T) -> Option<T> {
    let file = open(Name::of_process(pid, "/stat"), OFlags::empty()).ok()?;
    // Up to 52 numbers of 20 digits and a name of 64 bytes.
    let mut bytes = [0_u8; 1280];
    let length = read(&file, &mut bytes).ok()?;
    ProcStat::parse(bytes.get(..length)?).map(|stat| of(&stat))
}

fn open(name: Name, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | flags;
    openat(CWD, name.as_c_str(), flags, Mode::empty())
}

fn threads(pid: u32, act: &mut dyn FnMut(u32)) {
    let Ok(dir) = open(Name::of_process(pid, "/task"), OFlags::DIRECTORY) else {
        return;
    };
    let mut room = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(&dir, &mut room);
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_str();
        if let Some(thread) = name.ok().and_then(|name| name.parse().ok()) {
            act(thread);
        }
    }
}

/// Calls `act` for each pid in a list of children.
fn children(name: Name, bytes: &mut [u8], act: &mut dyn FnMut(u32)) {
    let Ok(file) = open(name, OFlags::empty()) else {
        return;
    };
    let mut list = ChildPids::default();
    while let Ok(length) = read(&file, &mut *bytes)
        && length > 0
    {
        list.take(bytes.get(..length).unwrap_or_default(), act);
    }
    list.finish(act);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_stat_is_read() {
        let found = stat(std::process::id(), |stat| (stat.ppid, stat.has_ended()));
        assert_eq!(found, Some((std::os::unix::process::parent_id(), false)));
    }
}
