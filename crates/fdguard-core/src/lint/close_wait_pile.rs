//! Sockets whose peer hung up and that nobody closed.

use super::{Lint, Severity, Suspicion};
use crate::{Class, Snapshot, TcpState};

/// Fewer may just be on their way to being closed.
const PILE: usize = 5;

pub(super) const LINT: Lint = Lint {
    id: "close-wait-pile",
    severity: Severity::Warning,
    summary: "connections that the peer closed and this process still holds",
    cwe: Some(775),
    requirement: "R33",
    fix: "close the connection when a read returns 0: in an HTTP client, close or drain the response body on every path",
    check,
};

fn check(snapshot: &Snapshot) -> Vec<Suspicion> {
    let fds: Vec<_> = snapshot
        .fds
        .iter()
        .flatten()
        .filter(|entry| entry.class == Class::Tcp(TcpState::CloseWait))
        .map(|entry| entry.fd)
        .collect();
    if fds.len() < PILE {
        return Vec::new();
    }
    vec![Suspicion {
        message: format!(
            "{} connections were closed by the peer and are still held",
            fds.len()
        ),
        fds,
    }]
}
