//! Epoll registrations that are stale.

use std::collections::HashMap;

use fdguard_core::{Detail, Fd};

use super::Links;
use crate::linux::table::TableDraft;
use fdguard_proc::fdinfo::EpollTarget;

/// Marks the ghosts: registered files that are no longer at their number, because the number was
/// closed while a duplicate kept the file alive, or was given to another file. All anonymous inodes
/// share one inode number, so a ghost whose number went to another anonymous inode is not detected.
pub(super) fn mark(table: &mut TableDraft, _: Links<'_>) {
    if table.epolls.is_empty() {
        return;
    }
    let entries = table.entries.iter();
    let entries = entries.map(|entry| (entry.fd, entry.id.map(|id| id.ino)));
    let sockets = table.sockets.iter().map(|it| (it.fd, Some(it.id.ino)));
    let held: HashMap<Fd, Option<u64>> = entries.chain(sockets).collect();
    for (fd, registrations) in &table.epolls {
        let ghost_fds: Vec<Fd> = registrations
            .iter()
            .filter(|target| is_ghost(target, held.get(&target.fd)))
            .map(|target| target.fd)
            .collect();
        let Ok(at) = table.entries.binary_search_by_key(fd, |entry| entry.fd) else {
            continue;
        };
        if let Detail::Eventpoll(epoll) = &mut table.entries[at].detail {
            epoll.ghosts = Some(ghost_fds.len() as u64);
            epoll.ghost_fds = ghost_fds;
        }
    }
}

fn is_ghost(target: &EpollTarget, held: Option<&Option<u64>>) -> bool {
    match (held, target.ino) {
        (None, _) => true,
        (Some(Some(now)), Some(registered)) => *now != registered,
        // On kernels that print no inode, only absence can be judged.
        _ => false,
    }
}
