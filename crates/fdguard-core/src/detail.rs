//! Class-specific details: one small record each.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Class, Fd, FdHolder, Pid, Text};

/// The detail of a descriptor, by its class. In JSON it is the bare object: the class next to it
/// determines its type.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Detail {
    /// Regular files and their variants, directories, devices, terminals.
    File(Box<FileDetail>),
    /// The master side of a pseudo-terminal.
    Pty(Box<PtyDetail>),
    /// Anonymous and named pipes.
    Pipe(Box<PipeDetail>),
    /// TCP and UDP sockets, raw ones too.
    Inet(Box<InetDetail>),
    /// Unix-domain sockets.
    Unix(Box<UnixDetail>),
    /// Sockets of other families.
    Socket(Box<SocketDetail>),
    /// Epoll instances.
    Eventpoll(Box<Eventpoll>),
    /// Event counters.
    Eventfd(Eventfd),
    /// Timers.
    Timerfd(Box<Timerfd>),
    /// Signal descriptors.
    Signalfd(Signalfd),
    /// File watchers, inotify and fanotify.
    Watcher(WatcherDetail),
    /// Process handles.
    Pidfd(Pidfd),
    /// Anonymous memory files.
    Memfd(Memfd),
    /// io_uring instances.
    IoUring(IoUring),
    /// Everything else: what the kernel printed, by its own names.
    Fields(OtherDetail),
}

/// A file that has a path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileDetail {
    /// Path in the target's own mount namespace, without the kernel's deletion mark.
    pub path: Text,
    /// Read and write position; absent where it could not be read.
    pub pos: Option<u64>,
    /// Size in bytes, for regular files.
    #[serde(default)]
    pub size: Option<u64>,
    /// Number of names the file has.
    #[serde(default)]
    pub links: Option<u32>,
    /// Locks and leases that this descriptor's process holds on the file.
    #[serde(default)]
    pub locks: Vec<FileLock>,
    /// Device number `major:minor` for devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// For SQLite database files: whether the file begins with the SQLite magic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub magic: Option<bool>,
    /// Device number `major:minor` of the file system that it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<Text>,
    /// For `/dev/net/tun`: the network interface behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// For the slave side of a pseudo-terminal: the visible holders of the master.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peer: Vec<FdHolder>,
}

/// One lock line of fdinfo.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileLock {
    /// `POSIX`, `FLOCK`, `OFDLCK`, `LEASE`, `DELEG`.
    pub kind: String,
    /// `READ` or `WRITE`.
    pub access: String,
    /// First byte.
    pub start: u64,
    /// Last byte; absent for "to the end".
    pub end: Option<u64>,
}

/// Which side of a pty this is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PtyDetail {
    /// The pts number: the other side is `/dev/pts/INDEX`.
    pub index: Option<u32>,
    /// The path it was opened by.
    pub path: Text,
    /// The visible holders of the other side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peer: Vec<FdHolder>,
}

/// Which end of a pipe this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PipeEnd {
    /// The end that is read from.
    Read,
    /// The end that is written to.
    Write,
    /// Opened for both.
    Both,
}

/// A pipe and the holders of its other end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PipeDetail {
    /// Which end; unknown where fdinfo could not be read.
    pub end: Option<PipeEnd>,
    /// The holders of the other end, this process included. An empty list means that every process
    /// was examined and none holds it; `null` means that this is not known.
    pub peer: Option<Vec<FdHolder>>,
    /// How many holders are not listed.
    #[serde(default, skip_serializing_if = "crate::entry::is_zero")]
    pub peer_more: u64,
    /// The path of a named pipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Text>,
}

/// An IP socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InetDetail {
    /// Local address; absent while unbound.
    pub local: Option<String>,
    /// Remote address; absent while not connected.
    pub remote: Option<String>,
    /// The TCP state's name; absent for other protocols.
    pub state: Option<Cow<'static, str>>,
    /// Bytes received and not read, or connections waiting to be accepted.
    pub rx_queue: Option<u64>,
    /// Bytes sent and not acknowledged.
    pub tx_queue: Option<u64>,
    /// Owner of the socket by user id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The protocol, where the class does not name it: `UDP-Lite`, or that of a raw socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Inode of the network namespace that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<u64>,
    /// The other end, where it is a socket of the same network namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<InetPeer>,
}

/// The other end of a TCP connection within one host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InetPeer {
    /// Its socket inode.
    pub ino: u64,
    /// The visible holders.
    pub holders: Vec<FdHolder>,
    /// How many holders are not listed.
    #[serde(default, skip_serializing_if = "crate::entry::is_zero")]
    pub holders_more: u64,
}

/// A unix-domain socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnixDetail {
    /// Its own name; abstract names begin with `@`.
    pub path: Option<Text>,
    /// `stream`, `dgram` or `seqpacket`.
    pub kind: Option<Cow<'static, str>>,
    /// `listening`, `connected` or `unconnected`.
    pub state: Option<Cow<'static, str>>,
    /// The other end; absent when there is none or it is not known.
    pub peer: Option<UnixPeer>,
    /// Which directions were shut down; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown: Option<Vec<Direction>>,
    /// Inode of the network namespace that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<u64>,
}

/// A direction of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Nothing more is received.
    Read,
    /// Nothing more is sent.
    Write,
}

/// The other end of a unix-domain socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnixPeer {
    /// Its socket inode.
    pub ino: u64,
    /// Its name, usually the path that was connected to.
    pub path: Option<Text>,
    /// The visible holders.
    pub holders: Vec<FdHolder>,
    /// How many holders are not listed.
    #[serde(default, skip_serializing_if = "crate::entry::is_zero")]
    pub holders_more: u64,
}

/// A socket of a family without its own table here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SocketDetail {
    /// Protocol as the kernel names it.
    pub protocol: Option<String>,
    /// Netlink: the family (`ROUTE`, `KOBJECT_UEVENT`, …) and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// Netlink: the multicast groups that it receives, as far as the kernel lists them (1 to 32).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<u8>>,
    /// `raw`, `dgram`, `stream`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Cow<'static, str>>,
    /// Packet: the interface that it is bound to; absent while it listens on all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Vsock: this end, `CID:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// Vsock: the other end, `CID:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// Inode of the network namespace that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<u64>,
}

/// An epoll instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Eventpoll {
    /// How many files are registered.
    pub watching: u64,
    /// How many of them are no longer open under the number they were registered with. Absent where
    /// the rest of the table was not examined.
    pub ghosts: Option<u64>,
    /// The registered numbers.
    #[serde(default)]
    pub targets: Vec<Fd>,
    /// The numbers of the ghosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ghost_fds: Vec<Fd>,
}

/// An event counter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Eventfd {
    /// Present value.
    pub count: Option<u64>,
    /// Kernel-wide number: equal numbers are the same eventfd.
    pub id: Option<u64>,
    /// Whether reads take one at a time.
    pub semaphore: Option<bool>,
}

/// A timer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timerfd {
    /// Clock by name.
    pub clock: Option<String>,
    /// Expirations not yet read.
    pub ticks: Option<u64>,
    /// Seconds until it fires; 0 when disarmed.
    pub remaining: Option<f64>,
    /// Seconds between repeats; 0 for once.
    pub interval: Option<f64>,
}

/// A signal descriptor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Signalfd {
    /// Signal numbers it reads.
    pub signals: Vec<u8>,
}

/// A file watcher.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatcherDetail {
    /// Number of watches (inotify) or marks (fanotify).
    pub watches: u64,
    /// What inotify watches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inodes: Vec<WatchedInode>,
}

/// A watched file: the kernel reports nothing else about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedInode {
    /// Its inode.
    pub ino: u64,
    /// Device number `major:minor` of its file system.
    pub dev: String,
}

/// A process handle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pidfd {
    /// The process, in fdguard's pid namespace; absent once it is gone or when it is in a namespace
    /// that fdguard cannot see.
    pub pid: Option<Pid>,
    /// Whether it still runs: a zombie does not.
    pub alive: Option<bool>,
    /// Its command name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Text>,
}

/// An anonymous memory file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memfd {
    /// The name it was created with.
    pub name: Text,
    /// Size in bytes.
    pub size: Option<u64>,
}

/// An io_uring instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IoUring {
    /// Registered files: they have no descriptor number and count toward no limit.
    pub files: Option<u64>,
    /// Registered buffers.
    pub buffers: Option<u64>,
}

/// What the kernel printed about anything else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OtherDetail {
    /// fdinfo lines beyond the common ones, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, Text>,
}

impl Detail {
    /// Notes the network namespace of a socket.
    pub fn set_netns(&mut self, netns: Option<u64>) {
        match self {
            Self::Inet(inet) => inet.netns = netns,
            Self::Unix(unix) => unix.netns = netns,
            Self::Socket(socket) => socket.netns = netns,
            _ => {}
        }
    }

    /// Reads a stored detail back, guided by the class beside it.
    pub fn from_json(class: &Class, value: serde_json::Value) -> Result<Self, serde_json::Error> {
        use serde_json::from_value as read;
        // A detail that could not be read is written as an empty object, whatever the class.
        if value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(Self::Fields(OtherDetail::default()));
        }
        Ok(match class {
            Class::Regular
            | Class::SqliteDb
            | Class::SqliteWal
            | Class::SqliteShm
            | Class::SqliteJournal
            | Class::Deleted
            | Class::Directory
            | Class::Chardev
            | Class::Blockdev
            | Class::Tty => Self::File(read(value)?),
            Class::PtyMaster => Self::Pty(read(value)?),
            Class::Pipe | Class::Fifo => Self::Pipe(read(value)?),
            Class::Tcp(_) | Class::Udp | Class::Raw => Self::Inet(read(value)?),
            Class::Unix => Self::Unix(read(value)?),
            Class::Netlink | Class::Packet | Class::Vsock => Self::Socket(read(value)?),
            Class::Other(name) if is_ping(name) => Self::Inet(read(value)?),
            Class::Eventpoll => Self::Eventpoll(read(value)?),
            Class::Eventfd => Self::Eventfd(read(value)?),
            Class::Timerfd => Self::Timerfd(read(value)?),
            Class::Signalfd => Self::Signalfd(read(value)?),
            Class::Inotify | Class::Fanotify => Self::Watcher(read(value)?),
            Class::Pidfd => Self::Pidfd(read(value)?),
            Class::Memfd => Self::Memfd(read(value)?),
            Class::IoUring => Self::IoUring(read(value)?),
            _ => Self::Fields(read(value)?),
        })
    }
}

/// Whether this raw name is that of unprivileged ICMP sockets.
fn is_ping(name: &str) -> bool {
    matches!(name, "PING" | "PINGv6")
}
