//! Epoll registrations that are stale.

use fdguard_core::{Detail, Fd};
use fdguard_proc::fdinfo::EpollTarget;
use rustc_hash::FxHashMap;

use super::Links;
use crate::linux::table::TableDraft;

/// Marks the ghosts: registered files that are no longer at their number, because the number was
/// closed while a duplicate kept the file alive, or was given to another file. All anonymous inodes
/// share one inode number, so a ghost whose number went to another anonymous inode is not detected.
pub(super) fn mark(table: &mut TableDraft, _: Links<'_>) {
    if table.epolls.is_empty() {
        return;
    }
    // Tables are long, and what is registered is little of them: entries are searched, not indexed.
    let sockets = table.sockets.iter().map(|it| (it.fd, it.id.ino));
    let sockets: FxHashMap<Fd, u64> = sockets.collect();
    for (fd, registrations) in &table.epolls {
        let held = |fd: &Fd| {
            let at = table.entries.binary_search_by_key(fd, |entry| entry.fd);
            match at {
                Ok(at) => Some(table.entries[at].id.map(|id| id.ino)),
                Err(_) => sockets.get(fd).map(|ino| Some(*ino)),
            }
        };
        let ghost_fds: Vec<Fd> = registrations
            .iter()
            .filter(|target| is_ghost(target, held(&target.fd)))
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

fn is_ghost(target: &EpollTarget, held: Option<Option<u64>>) -> bool {
    match (held, target.ino) {
        (None, _) => true,
        (Some(Some(now)), Some(registered)) => now != registered,
        // On kernels that print no inode, only absence can be judged.
        _ => false,
    }
}
