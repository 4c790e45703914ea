//! What each descriptor was: its class and target at each sample, kept because a process cannot be
//! read after it ended, or by its link and the call that opened it.

use std::collections::HashMap;
use std::fs::FileType;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use fdguard_core::lifetimes::Lifetime;
use fdguard_core::watch::Watch;
use fdguard_core::{Class, Fd, Pid, TcpState, Text};
use fdguard_trace::TracedProcess;

/// How many sightings of one number are kept.
const MOST: usize = 4;

/// The descriptors seen in every process.
#[derive(Debug, Default)]
pub struct FdNames {
    processes: HashMap<Pid, HashMap<Fd, Vec<Sighting>>>,
}

/// What a number was seen to be, for some time.
#[derive(Clone, Debug)]
struct Sighting {
    first: u64,
    last: u64,
    class: Class,
    target: Text,
}

impl FdNames {
    /// Adds a look that finished at this time of the monotonic clock.
    pub fn note_sample(&mut self, watch: &Watch, now: u64) {
        for subject in watch.subjects().filter(|one| one.gone.is_none()) {
            let process = self.processes.entry(subject.process.pid).or_default();
            for (fd, held) in subject.timeline.live().iter() {
                let sightings = process.entry(fd).or_default();
                let is_same =
                    |one: &&mut Sighting| one.class == held.class && one.target == held.target;
                if let Some(same) = sightings.last_mut().filter(is_same) {
                    same.last = now;
                    continue;
                }
                if sightings.len() == MOST {
                    sightings.remove(0);
                }
                sightings.push(Sighting {
                    first: now,
                    last: now,
                    class: held.class.clone(),
                    target: held.target.clone(),
                });
            }
        }
    }

    /// The name of a descriptor: as last seen, else by its link, else by the call that opened it.
    #[must_use]
    pub fn name(&self, process: &TracedProcess, one: &Lifetime) -> (Option<Class>, Option<Text>) {
        let closed = one.closed.map(|closed| {
            let lived = std::time::Duration::try_from_secs_f64(closed.real - one.opened.real);
            let lived = lived.map_or(0, |lived| u64::try_from(lived.as_nanos()).unwrap_or(0));
            one.at.saturating_add(lived)
        });
        let sightings = self.processes.get(&process.pid);
        let sightings = sightings.and_then(|numbers| numbers.get(&one.fd));
        let is_it = |seen: &&Sighting| {
            seen.last > one.at && closed.is_none_or(|closed| seen.first < closed)
        };
        let seen = sightings.and_then(|all| all.iter().rev().find(is_it));
        let key = (one.fd, one.at);
        // `open` does not reveal the kind of file.
        let by_call = || {
            let class = process.classes.get(&key).cloned();
            class.filter(|class| *class != Class::Regular || Class::from_call(one.call).is_some())
        };
        match (seen, process.links.get(&key)) {
            (Some(seen), _) if !matches!(seen.class, Class::Other(_)) => {
                (Some(seen.class.clone()), Some(seen.target.clone()))
            }
            (_, Some(text)) => {
                let (class, target) = classify_link(text.as_bytes());
                (class.or_else(by_call), Some(target))
            }
            _ => (by_call().or_else(|| Class::from_call(one.call)), None),
        }
    }
}

/// Classifies a link of `/proc`: `pipe:[7]`, `anon_inode:[eventfd]`, a path. The class is absent if
/// only the process could know it: the kind of a socket.
#[must_use]
pub fn classify_link(link: &[u8]) -> (Option<Class>, Text) {
    if link.starts_with(b"socket:[") {
        return of_socket(link);
    }
    let target = Text::from(link);
    let text = String::from_utf8_lossy(link);
    if let Some(name) = text.strip_prefix("anon_inode:") {
        let name = name.trim_matches(['[', ']']);
        return (Some(anonymous(name)), target);
    }
    let class = match () {
        () if text.starts_with("pipe:[") => Some(Class::Pipe),
        () if text.starts_with("/memfd:") => Some(Class::Memfd),
        () if text.ends_with(" (deleted)") => Some(Class::Deleted),
        () if text.starts_with("/dev/pts/") => Some(Class::Tty),
        () if text.ends_with("/ptmx") => Some(Class::PtyMaster),
        () if text.starts_with('/') => of_path(link),
        () => None,
    };
    (class, target)
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

fn anonymous(name: &str) -> Class {
    match name {
        "eventpoll" => Class::Eventpoll,
        "eventfd" => Class::Eventfd,
        "timerfd" => Class::Timerfd,
        "signalfd" => Class::Signalfd,
        "inotify" | "inotify]" => Class::Inotify,
        "fanotify" => Class::Fanotify,
        "pidfd" => Class::Pidfd,
        "io_uring" => Class::IoUring,
        "perf_event" => Class::PerfEvent,
        "bpf-map" => Class::BpfMap,
        "bpf-prog" => Class::BpfProg,
        "bpf_link" => Class::BpfLink,
        "userfaultfd" => Class::Userfaultfd,
        other => Class::Other(other.into()),
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

    use super::classify_link;

    #[test]
    fn a_link_tells_the_class_or_that_it_does_not() {
        let class = |link: &str| classify_link(link.as_bytes()).0;
        assert_eq!(class("pipe:[12]"), Some(Class::Pipe));
        assert_eq!(class("socket:[12]"), None);
        assert_eq!(
            class("socket:[12] 2 1 10"),
            Some(Class::Tcp(TcpState::Listen))
        );
        assert_eq!(class("socket:[12] 1 2 0"), Some(Class::Unix));
        assert_eq!(classify_link(b"socket:[12] 10 2 0").1, "socket:[12]".into());
        assert_eq!(class("anon_inode:[eventfd]"), Some(Class::Eventfd));
        assert_eq!(class("anon_inode:inotify"), Some(Class::Inotify));
        assert_eq!(class("anon_inode:[new]"), Some(Class::Other("new".into())));
        assert_eq!(class("/tmp/x (deleted)"), Some(Class::Deleted));
        assert_eq!(class("/dev/null"), Some(Class::Chardev));
        assert_eq!(class("/proc"), Some(Class::Directory));
        assert_eq!(class("/no/such/file"), None);
    }
}
