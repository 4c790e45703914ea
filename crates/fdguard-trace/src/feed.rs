//! Records of the ring into core's events: pure, so that it can be tested without a program.

use std::collections::{HashMap, VecDeque};

use fdguard_core::event::{BirthHow, Call, DeathHow, Errno, Event, StackId, What};
use fdguard_core::{Class, FileId, ProcKey, TcpState};
use fdguard_wire::{End, EventRecord, How, Kind, Prevented, Touch};

/// Who was inside a call when its number was closed tells where it was when it comes out; so many nanoseconds are
/// waited for that.
const PATIENCE: u64 = 5_000_000_000;
/// So many events are held back for it at most.
const MOST_HELD: usize = 1 << 16;

const AF_UNIX: u64 = 1;
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;
const AF_NETLINK: u64 = 16;
const AF_PACKET: u64 = 17;
const AF_VSOCK: u64 = 40;
const SOCK_TYPE: u64 = 0xf;
const SOCK_STREAM: u64 = 1;
const SOCK_DGRAM: u64 = 2;
const SOCK_RAW: u64 = 3;

/// The events of one process on their way.
#[derive(Debug)]
pub(crate) struct Feed {
    process: ProcKey,
    held: VecDeque<EventRecord>,
    classes: HashMap<u32, Class>,
    is_prevented: bool,
}

impl Feed {
    pub(crate) fn new(process: ProcKey) -> Self {
        Self {
            process,
            held: VecDeque::new(),
            classes: HashMap::new(),
            is_prevented: false,
        }
    }

    /// Whether protection kept the last event that was given from doing harm.
    pub(crate) fn is_prevented(&self) -> bool {
        self.is_prevented
    }

    pub(crate) fn process(&self) -> ProcKey {
        self.process
    }

    /// Takes what was read.
    pub(crate) fn take(&mut self, events: impl IntoIterator<Item = EventRecord>) {
        self.held.extend(events);
    }

    /// The next event that can be told, with stacks numbered by `number`. At the end nothing is held back.
    pub(crate) fn next(
        &mut self,
        now: u64,
        is_end: bool,
        number: &mut dyn FnMut(u32) -> StackId,
    ) -> Option<Event> {
        loop {
            let mut record = *self.held.front()?;
            if record.kind == Kind::Inside {
                let is_late = now.saturating_sub(record.ns) > PATIENCE;
                let is_over = is_end || is_late || self.held.len() > MOST_HELD;
                let out = self.out_of(&record);
                if out.is_none() && !is_over {
                    return None;
                }
                record.stack = out.map_or(0, |out| out.stack);
                if is_done(&record, out) && !is_late {
                    self.held.pop_front();
                    continue;
                }
            }
            self.held.pop_front();
            if let Some(what) = self.what(&record) {
                let may_be = matches!(record.kind, Kind::End | Kind::Use);
                self.is_prevented = may_be && record.code & Prevented::BIT != 0;
                return Some(Event {
                    process: self.process,
                    thread: record.tid,
                    at: record.ns,
                    stack: (record.stack != 0).then(|| number(record.stack)),
                    what,
                });
            }
        }
    }

    /// What the thread that is inside says when it comes out.
    fn out_of(&self, inside: &EventRecord) -> Option<EventRecord> {
        let is_it = |event: &&EventRecord| {
            let is_torn = event.kind == Kind::Use && event.code & Touch::TORN != 0;
            is_torn && event.tid == inside.tid && event.fd == inside.fd
        };
        self.held.iter().find(is_it).copied()
    }

    fn what(&mut self, record: &EventRecord) -> Option<What> {
        let fd = record.fd;
        let errno = (record.errno != 0).then(|| Errno::from_linux(i32::from(record.errno)));
        Some(match record.kind {
            Kind::Birth => self.birth(record),
            Kind::End => {
                if errno != Some(Errno::Ebadf) {
                    self.classes.remove(&fd);
                }
                let is_replaced = record.code & !Prevented::BIT == End::Dup2 as u8;
                let how = if is_replaced {
                    DeathHow::Dup2
                } else {
                    DeathHow::Close
                };
                What::Death { fd, how, errno }
            }
            Kind::EndRange => {
                let last = u32::try_from(record.more[0]).unwrap_or(u32::MAX);
                self.classes.retain(|known, _| !(fd..=last).contains(known));
                What::CloseRange {
                    first: fd,
                    last,
                    at_exec: false,
                }
            }
            Kind::Inside => What::Enter {
                fd,
                call: call(record.code),
            },
            Kind::Use => What::Use {
                fd,
                call: call(record.code),
                bytes: bytes(record),
                errno,
            },
            Kind::Lock | Kind::Unlock => What::Lock {
                fd,
                file: None,
                range: Some((record.more[0], record.more[1])),
                taken: record.kind == Kind::Lock,
            },
            Kind::File => What::File {
                fd,
                file: FileId {
                    mnt: record.more[0],
                    ino: record.more[1],
                },
            },
            Kind::Refused => What::Refused {
                call: birth_how(How::of(record.code)),
                errno: errno?,
            },
            Kind::Select => What::Select { nfds: fd },
            Kind::Retold => What::Retold { fd },
            // Children are followed elsewhere.
            Kind::Started | Kind::Reaped | Kind::Unknown => return None,
        })
    }

    fn birth(&mut self, record: &EventRecord) -> What {
        let how = How::of(record.code);
        let class = self.class(how, record.more[0]);
        match &class {
            Some(class) => self.classes.insert(record.fd, class.clone()),
            None => self.classes.remove(&record.fd),
        };
        What::Birth {
            fd: record.fd,
            how: birth_how(how),
            class,
            file: None,
            cloexec: false,
        }
    }

    /// What it is, as far as the call tells.
    fn class(&self, how: How, more: u64) -> Option<Class> {
        let source = || {
            let from = u32::try_from(more.checked_sub(1)?).ok()?;
            self.classes.get(&from).cloned()
        };
        Some(match how {
            How::Socket | How::Socketpair => return socket(more >> 32, more & SOCK_TYPE),
            How::Accept => match source()? {
                Class::Tcp(_) => Class::Tcp(TcpState::Established),
                other => other,
            },
            How::Dup | How::Dup2 | How::Fcntl => return source(),
            How::Open
            | How::Creat
            | How::Fopen
            | How::Freopen
            | How::Mkstemp
            | How::Tmpfile
            | How::ShmOpen => Class::Regular,
            How::Opendir => Class::Directory,
            How::Pipe | How::Popen => Class::Pipe,
            How::Eventfd => Class::Eventfd,
            How::Epoll => Class::Eventpoll,
            How::Timerfd => Class::Timerfd,
            How::Signalfd => Class::Signalfd,
            How::Inotify => Class::Inotify,
            How::Fanotify => Class::Fanotify,
            How::Memfd => Class::Memfd,
            How::Pidfd => Class::Pidfd,
            How::Openpt | How::Openpty => Class::PtyMaster,
            How::Unknown | How::MqOpen | How::Received | How::Syscall => return None,
        })
    }
}

/// Whether the call was over but for its return: what it wrote is often the very message on which the other thread closes.
fn is_done(inside: &EventRecord, out: Option<EventRecord>) -> bool {
    let writes = matches!(Touch::of(inside.code), Touch::Write | Touch::Send);
    writes && out.is_none_or(|out| out.errno == 0)
}

fn socket(domain: u64, kind: u64) -> Option<Class> {
    Some(match (domain, kind) {
        (AF_UNIX, _) => Class::Unix,
        (AF_INET | AF_INET6, SOCK_STREAM) => Class::Tcp(TcpState::Unbound),
        (AF_INET | AF_INET6, SOCK_DGRAM) => Class::Udp,
        (AF_INET | AF_INET6, SOCK_RAW) => Class::Raw,
        (AF_NETLINK, _) => Class::Netlink,
        (AF_PACKET, _) => Class::Packet,
        (AF_VSOCK, _) => Class::Vsock,
        _ => return None,
    })
}

fn birth_how(how: How) -> BirthHow {
    match how {
        How::Open
        | How::Creat
        | How::Fopen
        | How::Freopen
        | How::Mkstemp
        | How::Tmpfile
        | How::ShmOpen
        | How::MqOpen
        | How::Openpt
        | How::Openpty => BirthHow::Open,
        How::Opendir => BirthHow::Opendir,
        How::Socket => BirthHow::Socket,
        How::Socketpair => BirthHow::Socketpair,
        How::Accept => BirthHow::Accept,
        How::Dup | How::Fcntl => BirthHow::Dup,
        How::Dup2 => BirthHow::Dup2,
        How::Pipe | How::Popen => BirthHow::Pipe,
        How::Received => BirthHow::Received,
        How::Unknown => BirthHow::Unseen,
        _ => BirthHow::Anonymous,
    }
}

fn call(code: u8) -> Call {
    match Touch::of(code) {
        Touch::Other => Call::Other,
        Touch::Read => Call::Read,
        Touch::Write => Call::Write,
        Touch::Recv => Call::Recv,
        Touch::Send => Call::Send,
        Touch::Poll => Call::Poll,
        Touch::EpollWait => Call::EpollWait,
        Touch::Connect => Call::Connect,
        Touch::Accept => Call::Accept,
        Touch::Fsync => Call::Fsync,
        Touch::Truncate => Call::Truncate,
    }
}

/// The first bytes of what was written. Zeros at the end are not told apart from none: a record has its length in front.
fn bytes(record: &EventRecord) -> Vec<u8> {
    let mut bytes: Vec<u8> = record
        .more
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    let used = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    // A record's header may end with zeros.
    const HEADER: usize = 5;
    bytes.truncate(if used == 0 { 0 } else { used.max(HEADER) });
    bytes
}

#[cfg(test)]
mod tests;
