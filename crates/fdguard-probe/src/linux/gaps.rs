//! The gaps that reading a process can leave, each with its remedy.

use fdguard_core::units::counted;
use fdguard_core::{Class, Detail, Gap, Pid};

use super::search::Holdings;
use super::table::TableDraft;

pub(super) fn table_gaps(table: &TableDraft) -> Vec<Gap> {
    let mut gaps = Vec::new();
    if table.denied > 0 && !table.is_empty() {
        let what = counted(table.denied, "descriptor");
        gaps.push(Gap::new(
            what,
            "permission denied",
            "run as root, or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
        ));
    }
    if table.unstable > 0 {
        let what = counted(table.unstable, "descriptor");
        let why = "they were closed and reused while fdguard read them";
        gaps.push(Gap::new(
            what,
            why,
            "try again, or watch the process for a while",
        ));
    }
    gaps
}

pub(super) fn denied_gap(pid: Pid, counted: bool) -> Gap {
    let what = if counted {
        format!("the descriptors of process {pid} (only their count is known)")
    } else {
        format!("the descriptors of process {pid} and their count")
    };
    let remedy = "run as the process's user or as root (sudo fdguard …), or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH";
    Gap::new(
        what,
        "permission denied: the process belongs to another user or is protected",
        remedy,
    )
}

pub(super) fn socket_gap(complete: bool) -> Gap {
    if complete {
        let remedy = "run as root (CAP_SYS_ADMIN) to query that namespace";
        return Gap::new(
            "peers of Unix sockets",
            "the process is in another network namespace",
            remedy,
        );
    }
    let remedy = "run as root, or as the process's user";
    Gap::new(
        "states and addresses of sockets",
        "neither netlink nor /proc/PID/net could be read",
        remedy,
    )
}

/// For sockets that no table of the process's own namespace lists: `unasked` could not be borrowed;
/// for `foreign` only the sockets' own properties are known.
pub(super) fn unlisted_gaps(unasked: u64, foreign: u64) -> Vec<Gap> {
    let mut gaps = Vec::new();
    if unasked > 0 {
        gaps.push(Gap::new(
            format!("states and addresses of {}", counted(unasked, "socket")),
            "not in the tables of the process's network namespace: unbound, or from another namespace; the descriptor itself could not be queried",
            "run as root (CAP_SYS_PTRACE)",
        ));
    }
    if foreign > 0 {
        gaps.push(Gap::new(
            format!("queues and peers of {}", counted(foreign, "socket")),
            "they belong to a different network namespace than the process",
            "run as root (CAP_NET_ADMIN and CAP_SYS_ADMIN) to query that namespace",
        ));
    }
    gaps
}

pub(super) fn peers_gap(holdings: &Holdings, table: &TableDraft) -> Option<Gap> {
    let open_question = table.entries.iter().any(|entry| match &entry.detail {
        Detail::Pipe(pipe) => entry.class == Class::Pipe && pipe.peer.is_none(),
        Detail::Unix(unix) => unix
            .peer
            .as_ref()
            .is_some_and(|peer| peer.holders.is_empty()),
        _ => false,
    });
    let count = holdings.unread;
    let processes = counted(count, "process");
    let why = format!("permission denied for {processes}: owned by another user, or protected");
    let remedy = "run as root; processes that even root cannot read stay unknown";
    let what = "the other end of some pipes and sockets";
    (open_question && count > 0).then(|| Gap::new(what, why, remedy))
}

pub(super) fn hidden_gap() -> Gap {
    let why = "/proc is mounted with hidepid";
    let remedy = "run as root, or as a member of the group in its gid= option";
    Gap::new("processes of other users", why, remedy)
}
