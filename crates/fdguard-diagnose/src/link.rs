//! Classifies a descriptor that is already closed, by its link and the call that opened it.

use std::fs::FileType;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use fdguard_core::{Class, TcpState, Text};
use fdguard_probe::anonymous;
use fdguard_proc::link::Link;

/// Classifies a link of `/proc`: `pipe:[7]`, `anon_inode:[eventfd]`, a path. The class is absent if
/// only the process could know it: the kind of a socket.
#[must_use]
pub fn of_link(link: &[u8]) -> (Option<Class>, Text) {
    let word = link.split(|byte| *byte == b' ').next().unwrap_or(link);
    if let Link::Socket(_) = Link::parse(word) {
        return of_socket(link);
    }
    let class = match Link::parse(link) {
        Link::Pipe(_) => Some(Class::Pipe),
        Link::Anonymous(name) => Some(of_anonymous(name)),
        Link::Path { path, .. } if path.starts_with(b"/memfd:") => Some(Class::Memfd),
        Link::Path { marked: true, .. } => Some(Class::Deleted),
        Link::Path { path, .. } if path.starts_with(b"/dev/pts/") => Some(Class::Tty),
        Link::Path { path, .. } if path.ends_with(b"/ptmx") => Some(Class::PtyMaster),
        Link::Path { path, .. } => of_path(path),
        Link::Socket(_) | Link::Numbered { .. } | Link::Other(_) => None,
    };
    (class, Text::from(link))
}

fn of_anonymous(name: &[u8]) -> Class {
    let raw = || {
        Class::Other(
            String::from_utf8_lossy(name)
                .trim_matches(['[', ']'])
                .into(),
        )
    };
    anonymous::class_by_name(name).unwrap_or_else(raw)
}

/// `socket:[7]`, followed by domain, type and state if the process reported them.
fn of_socket(link: &[u8]) -> (Option<Class>, Text) {
    const UNIX: u32 = 1;
    const INET: [u32; 2] = [2, 10];
    const NETLINK: u32 = 16;
    const PACKET: u32 = 17;
    const VSOCK: u32 = 40;
    let text = String::from_utf8_lossy(link);
    let mut words = text.split(' ');
    let target = Text::from(words.next().unwrap_or_default());
    let mut numbers = words.map_while(|word| word.parse::<u32>().ok());
    let (Some(domain), Some(kind)) = (numbers.next(), numbers.next()) else {
        return (None, target);
    };
    let class = match (domain, kind) {
        (UNIX, _) => Class::Unix,
        (domain, 1) if INET.contains(&domain) => Class::Tcp(tcp_state(numbers.next())),
        (domain, 2) if INET.contains(&domain) => Class::Udp,
        (domain, 3) if INET.contains(&domain) => Class::Raw,
        (NETLINK, _) => Class::Netlink,
        (PACKET, _) => Class::Packet,
        (VSOCK, _) => Class::Vsock,
        _ => return (None, target),
    };
    (Some(class), target)
}

/// By the kernel's number.
fn tcp_state(number: Option<u32>) -> TcpState {
    match number {
        Some(1) => TcpState::Established,
        Some(2) => TcpState::SynSent,
        Some(3) => TcpState::SynRecv,
        Some(4) => TcpState::FinWait1,
        Some(5) => TcpState::FinWait2,
        Some(6) => TcpState::TimeWait,
        Some(7) => TcpState::Unbound,
        Some(8) => TcpState::CloseWait,
        Some(9) => TcpState::LastAck,
        Some(10) => TcpState::Listen,
        Some(11) => TcpState::Closing,
        _ => TcpState::Unknown,
    }
}

/// By the file that is there now: the process is gone.
fn of_path(path: &[u8]) -> Option<Class> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let kind = path.symlink_metadata().ok()?.file_type();
    Some(of_kind(kind))
}

fn of_kind(kind: FileType) -> Class {
    if kind.is_dir() {
        Class::Directory
    } else if kind.is_char_device() {
        Class::Chardev
    } else if kind.is_block_device() {
        Class::Blockdev
    } else if kind.is_fifo() {
        Class::Fifo
    } else {
        Class::Regular
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::{Class, TcpState};

    use super::of_link;

    #[test]
    fn a_link_tells_the_class_or_that_it_does_not() {
        let class = |link: &str| of_link(link.as_bytes()).0;
        assert_eq!(class("pipe:[12]"), Some(Class::Pipe));
        assert_eq!(class("socket:[12]"), None);
        assert_eq!(
            class("socket:[12] 2 1 10"),
            Some(Class::Tcp(TcpState::Listen))
        );
        assert_eq!(class("socket:[12] 1 2 0"), Some(Class::Unix));
        assert_eq!(of_link(b"socket:[12] 10 2 0").1, "socket:[12]".into());
        assert_eq!(class("anon_inode:[eventfd]"), Some(Class::Eventfd));
        assert_eq!(class("anon_inode:inotify"), Some(Class::Inotify));
        assert_eq!(class("anon_inode:[new]"), Some(Class::Other("new".into())));
        assert_eq!(class("/tmp/x (deleted)"), Some(Class::Deleted));
        assert_eq!(class("/dev/null"), Some(Class::Chardev));
        assert_eq!(class("/proc"), Some(Class::Directory));
        assert_eq!(class("/no/such/file"), None);
    }
}
