//! Addresses of sockets as the kernel writes them.

use fdguard_probe::parse::sockaddr::SocketName;

pub(crate) fn run(bytes: &[u8]) {
    if let Some(SocketName::Unix(name)) = SocketName::parse(bytes) {
        assert!(format!("{name:?}").len() <= 16 + 8 * bytes.len());
    }
}
