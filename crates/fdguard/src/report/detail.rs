//! What a descriptor's detail adds to its target, in a few words.

use fdguard_core::detail::{InetDetail, PipeDetail, PipeEnd, UnixPeer};
use fdguard_core::units::duration;
use fdguard_core::{Detail, FdEntry, FdHolder};

use super::table::counted;
use crate::terminal::{sanitize, sanitize_str};

/// A few words; empty if the target is enough.
#[must_use]
pub fn note(entry: &FdEntry) -> String {
    let mut notes = Vec::new();
    if entry.deleted {
        notes.push("(deleted)".to_owned());
    }
    notes.extend(by_kind(&entry.detail));
    if !entry.shared_with.is_empty() {
        notes.push(format!(
            "also open in {}",
            holders(&entry.shared_with, entry.shared_more)
        ));
    }
    if let Some(file) = &entry.open_file {
        let others = holders(&file.shared_with, file.shared_more);
        notes.push(format!("same open file as {others}"));
    }
    // In a saved file, even the kernel's own words are untrusted.
    sanitize_str(&notes.join(", ")).into_owned()
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
        Detail::Pipe(pipe) => notes.extend(pipe_notes(pipe)),
        Detail::Inet(inet) => notes.extend(inet_notes(inet)),
        Detail::Unix(unix) => {
            let listening = unix.state.as_deref().filter(|state| *state == "listening");
            notes.extend(listening.map(str::to_owned));
            notes.extend(unix.peer.as_ref().and_then(unix_peer));
        }
        Detail::Eventpoll(epoll) => {
            notes.push(format!("watches {}", epoll.watching));
            let ghosts = epoll.ghosts.filter(|ghosts| *ghosts > 0);
            notes.extend(ghosts.map(|ghosts| counted(ghosts, "ghost")));
        }
        Detail::Eventfd(eventfd) => {
            notes.extend(eventfd.count.map(|count| format!("count {count}")))
        }
        Detail::Timerfd(timer) => notes.extend(
            timer
                .remaining
                .map(|left| format!("{} left", duration(left))),
        ),
        Detail::Signalfd(signals) => notes.push(format!("signals {:?}", signals.signals)),
        Detail::Watcher(watcher) => notes.push(counted(watcher.watches, "watch")),
        Detail::Pidfd(pidfd) => match pidfd.alive {
            Some(true) => {}
            Some(false) => notes.push("exited".to_owned()),
            None => notes.push("state unknown".to_owned()),
        },
        Detail::IoUring(ring) => {
            notes.extend(ring.files.map(|files| counted(files, "registered file")))
        }
        _ => {}
    }
    notes
}

fn pipe_notes(pipe: &PipeDetail) -> Vec<String> {
    let end = match pipe.end {
        Some(PipeEnd::Read) => "read end",
        Some(PipeEnd::Write) => "write end",
        Some(PipeEnd::Both) => "both ends",
        None => return Vec::new(),
    };
    let peer = match pipe.peer.as_deref() {
        Some([]) => Some("no process has the other end open".to_owned()),
        Some(peers) => Some(format!("other end: {}", holders(peers, pipe.peer_more))),
        None => None,
    };
    std::iter::once(end.to_owned()).chain(peer).collect()
}

fn inet_notes(inet: &InetDetail) -> Vec<String> {
    if inet.state.as_deref() == Some("LISTEN") {
        // For a listener the queues are the waiting connections and the backlog.
        let queues = inet.rx_queue.zip(inet.tx_queue);
        return queues
            .map(|(waiting, most)| format!("{waiting} of {most} waiting to be accepted"))
            .into_iter()
            .collect();
    }
    let queued = |what: &str, bytes: Option<u64>| {
        let bytes = bytes.filter(|bytes| *bytes > 0)?;
        Some(format!("{} waiting to be {what}", counted(bytes, "byte")))
    };
    [queued("read", inet.rx_queue), queued("sent", inet.tx_queue)]
        .into_iter()
        .flatten()
        .collect()
}

fn unix_peer(peer: &UnixPeer) -> Option<String> {
    let path = peer.path.as_ref().map(sanitize);
    match (path, peer.holders.is_empty()) {
        (Some(path), true) => Some(format!("peer {path}")),
        (Some(path), false) => Some(format!(
            "peer {path} of {}",
            holders(&peer.holders, peer.holders_more)
        )),
        (None, false) => Some(format!(
            "peer: {}",
            holders(&peer.holders, peer.holders_more)
        )),
        (None, true) => None,
    }
}

/// `pid 12 fd 3, pid 13 fd 4 and 5 more`
fn holders(list: &[FdHolder], unlisted: u64) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = list
        .iter()
        .take(SHOWN)
        .map(|holder| format!("pid {} fd {}", holder.pid, holder.fd))
        .collect();
    match list.len().saturating_sub(SHOWN) as u64 + unlisted {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
