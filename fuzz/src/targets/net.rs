//! The text tables of sockets, each reader on the same bytes: one row a line at most.

use fdguard_proc::net::{InetKind, inet, netlink, packet, unix};

pub(crate) fn run(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    for kind in [InetKind::Tcp, InetKind::Udp, InetKind::Raw] {
        assert!(inet(kind, bytes).count() <= lines);
    }
    assert!(unix(bytes).count() <= lines);
    assert!(netlink(bytes).count() <= lines);
    assert!(packet(bytes).count() <= lines);
}
