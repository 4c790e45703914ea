//! Whether a service accepts the connections that wait on its listening sockets.
//!
//! A server whose accept loop died still listens: the kernel completes connections, and they wait.
//! No probe is needed to see that. A queue that is never empty proves nothing, because a busy
//! server has one. So waiting connections are identified by their remote addresses: they are
//! accepted in order, and the queue now is the queue before plus new connections minus accepted
//! ones. If nothing is missing from that sum, nothing was accepted.
//!
//! This is the judgement; [`queue`](super::queue) does the reading.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use fdguard_core::units::counted;

/// A listening socket of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// The inode of the socket.
    pub ino: u64,
    /// Its address.
    pub address: SocketAddr,
}

/// The connections waiting at one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptQueue {
    /// Whether one of the service's sockets listens there.
    pub listens: bool,
    /// Connections that wait to be accepted, at all of its sockets there.
    pub length: u32,
    /// Their remote addresses, as far as they are still connected.
    pub waiting: BTreeSet<SocketAddr>,
}

/// Remembers the previous look.
#[derive(Clone, Debug, Default)]
pub struct AcceptProgress {
    last: BTreeMap<u16, AcceptQueue>,
}

impl AcceptProgress {
    /// Fails if a port has no listener or makes no progress. The first look at a queue passes,
    /// because there is nothing to compare it with.
    pub fn seen(&mut self, now: BTreeMap<u16, AcceptQueue>) -> Result<(), String> {
        let mut answer = Ok(());
        for (port, queue) in &now {
            let before = self.last.get(port);
            if !queue.listens {
                answer = Err(format!("nothing listens on port {port} any more"));
            } else if before.is_some_and(|before| is_stuck(before, queue)) {
                let waiting = counted(queue.length, "connection");
                let verb = if queue.length == 1 { "is" } else { "are" };
                answer = Err(format!(
                    "accepts no connections: {waiting} {verb} waiting on port {port}"
                ));
            }
        }
        self.last = now;
        answer
    }
}

fn is_stuck(before: &AcceptQueue, now: &AcceptQueue) -> bool {
    if before.length == 0 || now.length == 0 {
        return false;
    }
    let came = now.waiting.difference(&before.waiting).count();
    let came = u32::try_from(came).unwrap_or(u32::MAX);
    // A connection that arrived between reading the queue and reading the connections makes the sum
    // too large: then it looks like progress once more, and the next look decides. The opposite
    // error cannot happen.
    now.length >= before.length.saturating_add(came)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{AcceptProgress, AcceptQueue};

    fn queue(far: &[u16]) -> AcceptQueue {
        AcceptQueue {
            listens: true,
            length: u32::try_from(far.len()).unwrap(),
            waiting: far
                .iter()
                .map(|port| ([127, 0, 0, 1], *port).into())
                .collect(),
        }
    }

    fn run(looks: &[AcceptQueue]) -> Vec<bool> {
        let mut progress = AcceptProgress::default();
        let look =
            |queue: &AcceptQueue| progress.seen(BTreeMap::from([(80, queue.clone())])).is_ok();
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_queue_that_only_grows_is_stuck() {
        let looks = [queue(&[1]), queue(&[1]), queue(&[1, 2]), queue(&[1, 2, 3])];
        assert_eq!(run(&looks), [true, false, false, false]);
    }

    #[test]
    fn a_queue_that_is_never_empty_moves_on() {
        let looks = [
            queue(&[1, 2]),
            queue(&[2, 3]),
            queue(&[3, 4, 5]),
            queue(&[4, 5, 6]),
        ];
        assert_eq!(run(&looks), [true; 4]);
    }

    #[test]
    fn an_empty_queue_and_the_first_connection_are_well() {
        assert_eq!(
            run(&[queue(&[]), queue(&[1]), queue(&[]), queue(&[2])]),
            [true; 4]
        );
    }

    #[test]
    fn one_that_was_reset_in_the_queue_is_no_progress() {
        let reset = AcceptQueue {
            length: 2,
            ..queue(&[1])
        };
        assert_eq!(run(&[queue(&[1, 2]), reset]), [true, false]);
    }

    #[test]
    fn the_reason_says_how_many_wait_where() {
        let mut progress = AcceptProgress::default();
        let look = || BTreeMap::from([(8080, queue(&[1, 2]))]);
        assert_eq!(progress.seen(look()), Ok(()));
        let why = progress.seen(look()).unwrap_err();
        assert_eq!(
            why,
            "accepts no connections: 2 connections are waiting on port 8080"
        );
        let gone = AcceptQueue::default();
        let why = progress.seen(BTreeMap::from([(8080, gone)])).unwrap_err();
        assert!(why.contains("nothing listens"), "{why}");
    }
}
