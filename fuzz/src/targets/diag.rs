//! Netlink answers about sockets: the first byte chooses the table, the rest is the datagram.

use fdguard_probe::parse::diag::{DiagTable, read_datagram};

const TABLES: [DiagTable; 5] = [
    DiagTable::Unix,
    DiagTable::Tcp4,
    DiagTable::Tcp6,
    DiagTable::Udp4,
    DiagTable::Udp6,
];

pub(crate) fn run(bytes: &[u8]) {
    let Some((first, datagram)) = bytes.split_first() else {
        return;
    };
    let mut rows = 0;
    read_datagram(TABLES[usize::from(*first) % 5], datagram, |_| rows += 1);
    // Each row has a header of 16 bytes of its own.
    assert!(rows * 16 <= datagram.len());
}
