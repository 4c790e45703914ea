//! What a descriptor's detail adds to its target, in a few words.

use fdguard_core::detail::{PipeEnd, UnixPeer};
use fdguard_core::{Detail, FdEntry, Holder};

use crate::terminal::sanitize;

/// A few words; empty where the target says it all.
#[must_use]
pub fn note(entry: &FdEntry) -> String {
    let mut notes = Vec::new();
    if entry.deleted {
        notes.push("(deleted)".to_owned());
    }
    notes.extend(by_kind(&entry.detail));
    if !entry.shared_with.is_empty() {
        notes.push(format!("also held by {}", holders(&entry.shared_with)));
    }
    notes.join(", ")
}

fn by_kind(detail: &Detail) -> Vec<String> {
    let mut notes = Vec::new();
    match detail {
        Detail::File(file) => {
            notes.extend(
                file.locks
                    .iter()
                    .map(|lock| format!("{} {} lock", lock.kind, lock.access.to_lowercase())),
            );
        }
        Detail::Pty(pty) => notes.extend(pty.index.map(|index| format!("/dev/pts/{index}"))),
        Detail::Pipe(pipe) => {
            notes.push(match pipe.end {
                Some(PipeEnd::Read) => "read end".to_owned(),
                Some(PipeEnd::Write) => "write end".to_owned(),
                Some(PipeEnd::Both) | None => "both ends".to_owned(),
            });
            match pipe.peer.as_deref() {
                Some([]) => notes.push("nobody holds the other end".to_owned()),
                Some(peers) => notes.push(format!("other end: {}", holders(peers))),
                None => {}
            }
        }
        Detail::Inet(inet) => {
            let queued = |name: &str, bytes: Option<u64>| {
                bytes
                    .filter(|bytes| *bytes > 0)
                    .map(|bytes| format!("{bytes} {name}"))
            };
            notes.extend(queued("waiting to be read", inet.rx_queue));
            notes.extend(queued("waiting to be sent", inet.tx_queue));
        }
        Detail::Unix(unix) => {
            notes.extend(unix.state.clone().filter(|state| state == "listening"));
            notes.extend(unix.peer.as_ref().and_then(unix_peer));
        }
        Detail::Eventpoll(epoll) => {
            notes.push(format!("watches {}", epoll.watching));
            if epoll.ghosts > 0 {
                notes.push(format!("{} ghosts", epoll.ghosts));
            }
        }
        Detail::Eventfd(eventfd) => {
            notes.extend(eventfd.count.map(|count| format!("count {count}")))
        }
        Detail::Timerfd(timer) => {
            notes.extend(timer.remaining.map(|left| format!("{left:.0} s left")))
        }
        Detail::Signalfd(signals) => notes.push(format!("signals {:?}", signals.signals)),
        Detail::Watcher(watcher) => notes.push(format!("{} watches", watcher.watches)),
        Detail::Pidfd(pidfd) => match pidfd.alive {
            Some(true) => {}
            Some(false) => notes.push("ended".to_owned()),
            None => notes.push("state unknown".to_owned()),
        },
        Detail::IoUring(ring) => {
            notes.extend(ring.files.map(|files| format!("{files} registered files")))
        }
        _ => {}
    }
    notes
}

fn unix_peer(peer: &UnixPeer) -> Option<String> {
    let path = peer.path.as_ref().map(sanitize);
    match (path, peer.holders.is_empty()) {
        (Some(path), true) => Some(format!("peer {path}")),
        (Some(path), false) => Some(format!("peer {path} of {}", holders(&peer.holders))),
        (None, false) => Some(format!("peer: {}", holders(&peer.holders))),
        (None, true) => None,
    }
}

/// `pid 12 fd 3, pid 13 fd 4 and 5 more`
fn holders(list: &[Holder]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = list
        .iter()
        .take(SHOWN)
        .map(|holder| format!("pid {} fd {}", holder.pid, holder.fd))
        .collect();
    match list.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
