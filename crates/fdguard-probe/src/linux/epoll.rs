//! Epoll registrations that are stale.

use std::collections::HashMap;

use fdguard_core::{Detail, Fd, FdEntry};

use fdguard_proc::fdinfo::EpollTarget;

/// The registrations of one epoll instance.
pub(super) type Registrations = (Fd, Vec<EpollTarget>);

/// Marks the ghosts: registered files that are no longer at their number, because the number was
/// closed while a duplicate kept the file alive, or was given to another file. All anonymous inodes
/// share one inode number, so a ghost whose number went to another anonymous inode is not detected.
pub(super) fn mark_ghosts(entries: &mut [FdEntry], epolls: &[Registrations]) {
    if epolls.is_empty() {
        return;
    }
    let held: HashMap<Fd, Option<u64>> = entries
        .iter()
        .map(|entry| (entry.fd, entry.id.map(|id| id.ino)))
        .collect();
    for (fd, registrations) in epolls {
        let ghost_fds: Vec<Fd> = registrations
            .iter()
            .filter(|target| is_ghost(target, held.get(&target.fd)))
            .map(|target| target.fd)
            .collect();
        let Ok(at) = entries.binary_search_by_key(fd, |entry| entry.fd) else {
            continue;
        };
        if let Detail::Eventpoll(epoll) = &mut entries[at].detail {
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
