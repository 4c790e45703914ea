//! Sockets inherited from fdguard's parent: `LISTEN_FDS` and related variables.
#![expect(unsafe_code, reason = "numbers that the parent left open become ours")]

use std::ffi::{OsStr, OsString};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use fdguard_core::Gap;
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_getfd};

use crate::notify::message::is_name;

/// The first number that is passed.
const FIRST: i32 = 3;
/// The numbers that fdguard's copies are moved to.
const HIGH: i32 = 100;
/// More than any parent passes; an invalid count must not make fdguard touch the whole table.
const MOST: i32 = 4096;

/// The sockets that the parent passed.
#[derive(Debug, Default)]
pub struct ActivatedSockets {
    /// Each with its name.
    pub fds: Vec<(OwnedFd, String)>,
    /// Sockets that were announced and are missing, or make no sense.
    pub gaps: Vec<Gap>,
}

/// The sockets that the environment announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// How many.
    pub count: i32,
    /// Their names; `unknown` for those without.
    pub names: Vec<String>,
}

/// The sockets that the environment announces to the process with this pid and pidfd id (unknown on
/// old kernels). `None` if there are none, or if they are meant for another process.
pub fn promise(
    read: impl Fn(&str) -> Option<OsString>,
    own: u32,
    own_id: Option<u64>,
) -> Result<Option<Promise>, Gap> {
    let number = |text: &OsStr| text.to_str().and_then(|text| text.parse::<u64>().ok());
    let wrong = |name: &str, text: &OsStr| {
        let why = format!("invalid value {name}={}", text.to_string_lossy());
        Gap::new(
            "sockets from the parent",
            why,
            "fix it in the parent, or unset it",
        )
    };
    let (Some(pid), Some(count)) = (read("LISTEN_PID"), read("LISTEN_FDS")) else {
        return Ok(None);
    };
    if number(&pid).ok_or_else(|| wrong("LISTEN_PID", &pid))? != u64::from(own) {
        return Ok(None);
    }
    if let Some(id) = read("LISTEN_PIDFDID") {
        let id = number(&id).ok_or_else(|| wrong("LISTEN_PIDFDID", &id))?;
        if own_id.is_some_and(|own| own != id) {
            return Ok(None);
        }
    }
    let parsed = number(&count).and_then(|it| i32::try_from(it).ok());
    let parsed = parsed.filter(|it| *it <= MOST);
    let parsed = parsed.ok_or_else(|| wrong("LISTEN_FDS", &count))?;
    let names = read("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.to_string_lossy();
    let mut names = names.split(':').filter(|_| !names.is_empty());
    let mut next = || names.next().filter(|name| is_name(name));
    let names = (0..parsed).map(|_| next().unwrap_or("unknown").to_owned());
    Ok(Some(Promise {
        count: parsed,
        names: names.collect(),
    }))
}

/// Takes them, close-on-exec and moved to high numbers. Call it once, before anything else opens a
/// descriptor: later calls return nothing.
#[must_use]
pub fn from_environment() -> ActivatedSockets {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let mut inherited = ActivatedSockets::default();
    if TAKEN.swap(true, Ordering::SeqCst) {
        return inherited;
    }
    let read = |name: &str| std::env::var_os(name);
    match promise(read, std::process::id(), own_pidfd_id()) {
        Ok(None) => {}
        Ok(Some(promise)) => {
            let numbers = FIRST..FIRST + promise.count;
            for (number, name) in numbers.zip(promise.names) {
                match take_one(number) {
                    Some(fd) => inherited.fds.push((fd, name)),
                    None => inherited.gaps.push(missing(number, &name)),
                }
            }
        }
        Err(gap) => inherited.gaps.push(gap),
    }
    inherited
}

/// Takes the one descriptor whose number is in this variable: for a descriptor that a program
/// passes to itself across an exec. Later calls return nothing.
#[must_use]
pub fn take_numbered(variable: &str) -> Option<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = std::env::var_os(variable)?.to_str()?.parse().ok();
    let number: i32 = number.filter(|number| *number >= FIRST)?;
    if TAKEN.swap(true, Ordering::SeqCst) {
        return None;
    }
    take_one(number)
}

fn missing(number: i32, name: &str) -> Gap {
    let why = format!("LISTEN_FDS includes descriptor {number} ({name}), which is not open");
    let remedy = "keep it open in the parent until fdguard starts";
    Gap::new("a socket from the parent", why, remedy)
}

fn take_one(number: i32) -> Option<OwnedFd> {
    // SAFETY: the borrow ends with the call, which only checks whether the number is open.
    let probe = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    fcntl_getfd(probe).ok()?;
    // SAFETY: it is open, and by the protocol it was left open for this process alone; `take`
    // returns each number once.
    let low = unsafe { OwnedFd::from_raw_fd(number) };
    match fcntl_dupfd_cloexec(&low, HIGH) {
        Ok(high) => Some(high),
        // The soft limit is lower: then it stays where it is.
        Err(_) => rustix::io::fcntl_setfd(&low, FdFlags::CLOEXEC)
            .is_ok()
            .then_some(low),
    }
}

/// An id that the kernel never gives to another process; since Linux 6.9.
fn own_pidfd_id() -> Option<u64> {
    const PIDFS_MAGIC: i64 = 0x5049_4446;
    let flags = rustix::process::PidfdFlags::empty();
    let own = rustix::process::pidfd_open(rustix::process::getpid(), flags).ok()?;
    let is_pidfs = rustix::fs::fstatfs(&own).is_ok_and(|it| it.f_type == PIDFS_MAGIC);
    let stat = rustix::fs::fstat(&own).ok()?;
    is_pidfs.then_some(stat.st_ino)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ffi::OsString;

    use super::promise;

    fn asked(pairs: &[(&str, &str)]) -> Result<Option<(i32, Vec<String>)>, String> {
        let map: HashMap<String, OsString> = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), OsString::from(value)))
            .collect();
        promise(|name| map.get(name).cloned(), 42, Some(7))
            .map(|it| it.map(|it| (it.count, it.names)))
            .map_err(|gap| gap.why)
    }

    #[test]
    fn what_is_meant_for_another_process_is_not_ours() {
        assert_eq!(asked(&[]), Ok(None));
        assert_eq!(asked(&[("LISTEN_FDS", "1")]), Ok(None));
        assert_eq!(
            asked(&[("LISTEN_FDS", "1"), ("LISTEN_PID", "41")]),
            Ok(None)
        );
        let reused = [
            ("LISTEN_FDS", "1"),
            ("LISTEN_PID", "42"),
            ("LISTEN_PIDFDID", "8"),
        ];
        assert_eq!(asked(&reused), Ok(None), "a pid that was used again");
    }

    #[test]
    fn names_are_given_in_order_and_those_without_are_unknown() {
        let some = [
            ("LISTEN_FDS", "3"),
            ("LISTEN_PID", "42"),
            ("LISTEN_PIDFDID", "7"),
            ("LISTEN_FDNAMES", "web:a\tb"),
        ];
        let names = ["web", "unknown", "unknown"].map(str::to_owned).to_vec();
        assert_eq!(asked(&some), Ok(Some((3, names))));
    }

    #[test]
    fn nonsense_is_told() {
        for (name, value) in [
            ("LISTEN_FDS", "-1"),
            ("LISTEN_FDS", "99999999"),
            ("LISTEN_PID", "me"),
            ("LISTEN_PIDFDID", "x"),
        ] {
            let mut pairs = vec![("LISTEN_FDS", "1"), ("LISTEN_PID", "42")];
            pairs.retain(|it| it.0 != name);
            pairs.push((name, value));
            let why = asked(&pairs).unwrap_err();
            assert!(why.contains(name), "{why}");
        }
    }
}
