//! Notifications to fdguard's parent through `NOTIFY_SOCKET`.
//!
//! A parent that does not listen must never stop or delay the service: every datagram is sent
//! without blocking, the first loss is reported once, and only essential messages (ready,
//! reloading, stopping) are retried for a while.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use fdguard_core::Gap;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::message::{NotifyMessage, Watchdog};

/// The interval between retries of essential messages, and how many there are.
const AGAIN: Duration = Duration::from_millis(100);
const TRIES: u32 = 50;
/// The most messages that wait for a retry: ready, reloading, stopping, and some spare.
const MOST_OWED: usize = 8;

/// The connection to the parent.
#[derive(Debug)]
pub struct NotifyClient {
    socket: OwnedFd,
    address: SocketAddrUnix,
    shown: String,
    owed: VecDeque<Vec<u8>>,
    /// When the waiting messages are retried, and how many retries are left.
    again: Option<(Instant, u32)>,
    lost: u64,
    warned: bool,
}

impl NotifyClient {
    /// The client for the parent named in the environment; `None` without one. On failure the gap
    /// has the reason.
    pub fn from_environment() -> Result<Option<Self>, Gap> {
        let Some(address) = std::env::var_os("NOTIFY_SOCKET").filter(|it| !it.is_empty()) else {
            return Ok(None);
        };
        Self::at(&address).map(Some)
    }

    /// The client for this value of `NOTIFY_SOCKET`.
    pub fn at(address: &OsStr) -> Result<Self, Gap> {
        let shown = address.to_string_lossy().into_owned();
        let gap = |why: String, remedy: &str| Gap::new("notifications to the parent", why, remedy);
        let parsed = address_of(address).map_err(|why| {
            let why = format!("NOTIFY_SOCKET={shown}: {why}");
            gap(
                why,
                "set it to a path or an @abstract name of a unix socket",
            )
        })?;
        let kind = SocketType::DGRAM;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).map_err(|error| {
                gap(
                    format!("cannot create a socket: {error}"),
                    "free some file descriptors",
                )
            })?;
        Ok(Self {
            socket,
            address: parsed,
            shown,
            owed: VecDeque::new(),
            again: None,
            lost: 0,
            warned: false,
        })
    }

    /// Sends a message to the parent without blocking. The first loss returns a gap; later ones are
    /// only counted.
    pub fn tell(&mut self, message: &NotifyMessage, now: Instant) -> Option<Gap> {
        let bytes = message.format();
        let lasting = message.ready || message.reloading || message.stopping;
        if !self.owed.is_empty() && lasting {
            // Queue it behind the waiting messages: the order is part of the meaning.
            return self.owe(bytes, now);
        }
        match self.send(&bytes) {
            Ok(()) => None,
            Err(Errno::AGAIN | Errno::NOBUFS) if lasting => self.owe(bytes, now),
            Err(error) => self.lose(error),
        }
    }

    /// Retries the waiting messages, if it is time.
    pub fn poll(&mut self, now: Instant) -> Option<Gap> {
        let (at, left) = self.again?;
        if now < at {
            return None;
        }
        while let Some(bytes) = self.owed.front() {
            match self.send(bytes) {
                Ok(()) => drop(self.owed.pop_front()),
                Err(Errno::AGAIN | Errno::NOBUFS) if left > 1 => {
                    self.again = Some((now + AGAIN, left - 1));
                    return None;
                }
                Err(error) => {
                    self.again = None;
                    self.lost += self.owed.len().saturating_sub(1) as u64;
                    self.owed.clear();
                    return self.lose(error);
                }
            }
        }
        self.again = None;
        None
    }

    /// When the next call to `poll` is needed at the latest.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.again.map(|(at, _)| at)
    }

    /// Messages that the parent did not receive.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match rustix::net::sendto(&self.socket, bytes, flags, &self.address) {
                Err(Errno::INTR) => {}
                sent => return sent.map(drop),
            }
        }
    }

    fn owe(&mut self, bytes: Vec<u8>, now: Instant) -> Option<Gap> {
        if self.owed.len() == MOST_OWED {
            return self.lose(Errno::NOBUFS);
        }
        self.owed.push_back(bytes);
        self.again.get_or_insert((now + AGAIN, TRIES));
        None
    }

    fn lose(&mut self, error: Errno) -> Option<Gap> {
        self.lost += 1;
        let first = !std::mem::replace(&mut self.warned, true);
        first.then(|| {
            let what = "notifications to the parent";
            let why = format!("cannot send to NOTIFY_SOCKET={}: {error}", self.shown);
            let remedy = "unset NOTIFY_SOCKET if nothing listens on it; the service keeps running";
            Gap::new(what, why, remedy)
        })
    }
}

/// A path, or an abstract name after `@`.
fn address_of(address: &OsStr) -> Result<SocketAddrUnix, String> {
    let bytes = address.as_bytes();
    if bytes.starts_with(b"vsock") {
        return Err(
            "vsock is not supported (the parent is outside this virtual machine)".to_owned(),
        );
    }
    let parsed = match bytes {
        [b'@', name @ ..] if !name.is_empty() => SocketAddrUnix::new_abstract_name(name),
        [b'/', ..] => SocketAddrUnix::new(bytes),
        _ => return Err("not a path or an @abstract name".to_owned()),
    };
    parsed.map_err(|error| error.to_string())
}

/// When to send watchdog pings to the parent: at half of its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    every: Duration,
    next: Instant,
}

impl Heartbeat {
    /// The heartbeat that the environment asks for.
    pub fn from_environment(now: Instant) -> Result<Option<Self>, Gap> {
        let read = |name: &str| std::env::var_os(name);
        let interval = watchdog_interval(read, std::process::id())?;
        Ok(interval.map(|interval| Self::within(interval, now)))
    }

    /// For a parent with this watchdog interval.
    #[must_use]
    pub fn within(interval: Duration, now: Instant) -> Self {
        Self {
            every: (interval / 2).max(Duration::from_millis(1)),
            next: now,
        }
    }

    /// When to send the next ping.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.next
    }

    /// Whether it is time; the next ping is then scheduled half an interval from now.
    pub fn beat(&mut self, now: Instant) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + self.every;
        }
        due
    }

    /// The message itself.
    #[must_use]
    pub fn message() -> NotifyMessage {
        NotifyMessage {
            watchdog: Some(Watchdog::Ping),
            ..NotifyMessage::default()
        }
    }
}

/// The parent's watchdog interval: `WATCHDOG_USEC`, if `WATCHDOG_PID` is absent or fdguard's pid.
pub fn watchdog_interval(
    read: impl Fn(&str) -> Option<OsString>,
    own: u32,
) -> Result<Option<Duration>, Gap> {
    let Some(text) = read("WATCHDOG_USEC") else {
        return Ok(None);
    };
    let number = |text: &OsStr| text.to_str().and_then(|text| text.parse::<u64>().ok());
    let wrong = |name: &str, text: &OsStr| {
        let why = format!("{name}={} is not a positive number", text.to_string_lossy());
        let remedy = "fix it in the parent, or unset it";
        Gap::new("the parent's watchdog", why, remedy)
    };
    if let Some(pid) = read("WATCHDOG_PID") {
        let pid = number(&pid).ok_or_else(|| wrong("WATCHDOG_PID", &pid))?;
        if pid != u64::from(own) {
            return Ok(None);
        }
    }
    let micros = number(&text).filter(|micros| *micros > 0);
    let micros = micros.ok_or_else(|| wrong("WATCHDOG_USEC", &text))?;
    Ok(Some(Duration::from_micros(micros)))
}

#[cfg(test)]
mod tests;
