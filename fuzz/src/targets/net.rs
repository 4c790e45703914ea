//! The text tables of sockets, each reader on the same bytes: one row a line at most.

use fdguard_proc::net::{InetKind, inet, interfaces, netlink, packet, unix};

const KINDS: [InetKind; 5] = [
    InetKind::Tcp,
    InetKind::Udp,
    InetKind::UdpLite,
    InetKind::Raw,
    InetKind::Ping,
];

pub(crate) fn run(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    for kind in KINDS {
        assert!(inet(kind, bytes).count() <= lines);
    }
    assert!(unix(bytes).count() <= lines);
    assert!(netlink(bytes).count() <= lines);
    assert!(packet(bytes).count() <= lines);
    assert!(interfaces(bytes).count() <= lines);
}
