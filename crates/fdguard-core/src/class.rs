//! What kind of thing a descriptor refers to, under its public name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The class of a descriptor. The names are public interface: see [`NAMES`] and `other:RAWNAME`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Class {
    /// A regular file of none of the kinds below.
    Regular,
    /// A SQLite database file.
    SqliteDb,
    /// The write-ahead log of a SQLite database: one descriptor per live connection.
    SqliteWal,
    /// The shared-memory index of a write-ahead log.
    SqliteShm,
    /// The rollback journal of a SQLite database.
    SqliteJournal,
    /// A regular file that was deleted.
    Deleted,
    /// A directory.
    Directory,
    /// A character device that is not a terminal.
    Chardev,
    /// A block device.
    Blockdev,
    /// The master side of a pseudo-terminal.
    PtyMaster,
    /// A terminal, real or the slave side of a pseudo-terminal.
    Tty,
    /// An anonymous pipe.
    Pipe,
    /// A named pipe.
    Fifo,
    /// A TCP socket, by state.
    Tcp(TcpState),
    /// A UDP socket.
    Udp,
    /// A unix-domain socket.
    Unix,
    /// A netlink socket.
    Netlink,
    /// A packet socket.
    Packet,
    /// A raw IP socket.
    Raw,
    /// A socket to a virtual machine monitor.
    Vsock,
    /// An epoll instance.
    Eventpoll,
    /// An event counter.
    Eventfd,
    /// A timer.
    Timerfd,
    /// Signals as reads.
    Signalfd,
    /// A file watcher.
    Inotify,
    /// A file-system watcher.
    Fanotify,
    /// A process handle.
    Pidfd,
    /// An anonymous memory file.
    Memfd,
    /// An io_uring instance.
    IoUring,
    /// A performance counter.
    PerfEvent,
    /// A BPF map.
    BpfMap,
    /// A BPF program.
    BpfProg,
    /// A BPF link.
    BpfLink,
    /// A page-fault handler.
    Userfaultfd,
    /// Anything else, by the name the kernel gives it.
    Other(Box<str>),
}

/// TCP states under their contract names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TcpState {
    /// Data can flow both ways.
    Established,
    /// Connecting.
    SynSent,
    /// A connection request came in.
    SynRecv,
    /// This end closed, the peer has not acknowledged.
    FinWait1,
    /// This end closed, the peer has not.
    FinWait2,
    /// Waiting for stray segments.
    TimeWait,
    /// Closed on both sides but still held.
    Close,
    /// The peer closed, this end has not: the classic leak.
    CloseWait,
    /// Both closed, last acknowledgement outstanding.
    LastAck,
    /// Accepting connections.
    Listen,
    /// Both closed at once.
    Closing,
    /// Bound to a port, neither connected nor listening.
    Bound,
    /// In none of the kernel's tables: never bound, or closed by both sides.
    Unbound,
    /// The kernel's tables could not be read.
    Unknown,
}

/// Writes the list of names, and a function that finds the name of a class without a search: the
/// class of every descriptor is written.
macro_rules! names {
    ($($class:ident $(($state:ident))? = $name:literal,)*) => {
        /// Every fixed class with its contract name, in the order of the contract.
        pub const NAMES: &[(Class, &str)] = &[
            $((Class::$class $((TcpState::$state))?, $name),)*
        ];

        fn name_of(class: &Class) -> Option<&'static str> {
            match class {
                $(Class::$class $((TcpState::$state))? => Some($name),)*
                Class::Other(_) => None,
            }
        }
    };
}

names! {
    Regular = "regular",
    SqliteDb = "sqlite-db",
    SqliteWal = "sqlite-wal",
    SqliteShm = "sqlite-shm",
    SqliteJournal = "sqlite-journal",
    Deleted = "deleted",
    Directory = "directory",
    Chardev = "chardev",
    Blockdev = "blockdev",
    PtyMaster = "pty-master",
    Tty = "tty",
    Pipe = "pipe",
    Fifo = "fifo",
    Tcp(Established) = "tcp:ESTABLISHED",
    Tcp(SynSent) = "tcp:SYN_SENT",
    Tcp(SynRecv) = "tcp:SYN_RECV",
    Tcp(FinWait1) = "tcp:FIN_WAIT1",
    Tcp(FinWait2) = "tcp:FIN_WAIT2",
    Tcp(TimeWait) = "tcp:TIME_WAIT",
    Tcp(Close) = "tcp:CLOSE",
    Tcp(CloseWait) = "tcp:CLOSE_WAIT",
    Tcp(LastAck) = "tcp:LAST_ACK",
    Tcp(Listen) = "tcp:LISTEN",
    Tcp(Closing) = "tcp:CLOSING",
    Tcp(Bound) = "tcp:BOUND",
    Tcp(Unbound) = "tcp:UNBOUND",
    Tcp(Unknown) = "tcp:UNKNOWN",
    Udp = "udp",
    Unix = "unix",
    Netlink = "netlink",
    Packet = "packet",
    Raw = "raw",
    Vsock = "vsock",
    Eventpoll = "eventpoll",
    Eventfd = "eventfd",
    Timerfd = "timerfd",
    Signalfd = "signalfd",
    Inotify = "inotify",
    Fanotify = "fanotify",
    Pidfd = "pidfd",
    Memfd = "memfd",
    IoUring = "io_uring",
    PerfEvent = "perf-event",
    BpfMap = "bpf-map",
    BpfProg = "bpf-prog",
    BpfLink = "bpf-link",
    Userfaultfd = "userfaultfd",
}

/// What fdguard's own descriptors in a protected process are called.
const FDGUARD: &str = "fdguard";

impl Class {
    /// A placeholder: a closed number that fdguard keeps reserved in a protected process.
    #[must_use]
    pub fn of_fdguard() -> Self {
        Self::Other(FDGUARD.into())
    }

    /// Whether it belongs to fdguard and not to the program.
    #[must_use]
    pub fn is_of_fdguard(&self) -> bool {
        matches!(self, Self::Other(name) if &**name == FDGUARD)
    }

    /// Whether this is a TCP socket in any state.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    /// Whether this is a SQLite file of any kind.
    #[must_use]
    pub fn is_sqlite(&self) -> bool {
        matches!(
            self,
            Self::SqliteDb | Self::SqliteWal | Self::SqliteShm | Self::SqliteJournal
        )
    }

    /// The class without what may change while a descriptor stays open: all TCP states are one
    /// family, and a file stays a file after it is deleted.
    #[must_use]
    pub fn family(&self) -> Self {
        match self {
            Self::Tcp(_) => Self::Tcp(TcpState::Unknown),
            Self::Deleted
            | Self::SqliteDb
            | Self::SqliteWal
            | Self::SqliteShm
            | Self::SqliteJournal => Self::Regular,
            other => other.clone(),
        }
    }

    /// The contract name; `None` for a class that has only the kernel's name.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        name_of(self)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.name()) {
            (Self::Other(raw), _) => f.pad(&format!("other:{raw}")),
            (_, Some(name)) => f.pad(name),
            (_, None) => f.pad("other:unnamed"),
        }
    }
}

/// A class name that the contract does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownClass(pub String);

impl fmt::Display for UnknownClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown descriptor class {:?}", self.0)
    }
}

impl std::error::Error for UnknownClass {}

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(name: &str) -> Result<Self, UnknownClass> {
        if let Some(raw) = name.strip_prefix("other:") {
            return Ok(Self::Other(raw.into()));
        }
        NAMES
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(class, _)| class.clone())
            .ok_or_else(|| UnknownClass(name.to_owned()))
    }
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.name() {
            Some(name) => serializer.serialize_str(name),
            None => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Class {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

impl TcpState {
    /// The state from the number the kernel uses in `/proc/net/tcp` and `sock_diag`.
    #[must_use]
    pub fn from_kernel(number: u8) -> Self {
        match number {
            1 => Self::Established,
            2 => Self::SynSent,
            3 | 12 => Self::SynRecv,
            4 => Self::FinWait1,
            5 => Self::FinWait2,
            6 => Self::TimeWait,
            7 => Self::Close,
            8 => Self::CloseWait,
            9 => Self::LastAck,
            10 => Self::Listen,
            11 => Self::Closing,
            13 => Self::Bound,
            _ => Self::Unknown,
        }
    }

    /// The contract name without `tcp:`.
    #[must_use]
    pub fn name(self) -> &'static str {
        Class::Tcp(self)
            .name()
            .map_or("UNKNOWN", |name| &name["tcp:".len()..])
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, NAMES, TcpState};

    #[test]
    fn every_name_of_the_contract_reads_back_as_its_class() {
        for (class, name) in NAMES {
            assert_eq!(name.parse::<Class>().unwrap(), *class);
            assert_eq!(class.to_string(), *name);
        }
    }

    #[test]
    fn unknown_kinds_keep_their_raw_name() {
        let class: Class = "other:[landlock-ruleset]".parse().unwrap();
        assert_eq!(class.to_string(), "other:[landlock-ruleset]");
    }

    #[test]
    fn a_tcp_state_names_itself_as_the_contract_does() {
        assert_eq!(TcpState::from_kernel(8).name(), "CLOSE_WAIT");
        assert_eq!(TcpState::from_kernel(200).name(), "UNKNOWN");
    }
}
