//! The exit report of a process that ends by itself: the names of the descriptors that it leaves
//! open.
//!
//! A process that has ended cannot be examined, and a short-lived one ends before anything examines
//! it. So, if a check asks for it (`FDGUARD_FAREWELL`), the process writes its exit report to a
//! file beside the mapping, `PID-BEGAN.left`: for each descriptor its number, a blank, the target
//! of its link in `/proc/self/fd`, and a zero byte; or a mark that the report is incomplete
//! ([`INCOMPLETE_EXIT_REPORT`]). A process without that file did not end by itself.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use fdguard_wire::INCOMPLETE_EXIT_REPORT;

use crate::start::{self, Text};
use crate::{errno, inflight, real, room, sys};

const ASKED: &CStr = c"FDGUARD_FAREWELL";
/// The most descriptors that are reported.
const MOST: usize = 4096;
/// A program that lived for this many nanoseconds was examined several times from outside.
const LONG: u64 = 1_000_000_000;
/// The kernel sends a signal if a file grows beyond its limit.
const ROOM: u64 = 64 << 20;

/// The process that has already written its report.
static SAID: AtomicU32 = AtomicU32::new(0);

/// Writes the report, once per process.
pub(crate) extern "C" fn tell() {
    // A seccomp filter may kill the program even for `getpid`.
    if !start::is_on() || start::is_filtered() || !is_asked() || !room::is_enough() {
        return;
    }
    let error = errno::load();
    let pid = sys::process();
    if SAID.swap(pid, Ordering::AcqRel) != pid {
        let _ = write(pid);
    }
    errno::store(error);
}

fn is_asked() -> bool {
    start::setting(ASKED, &mut [0; 64]).is_some()
}

fn write(pid: u32) -> Option<()> {
    // A `vfork` child exits in this memory, but its parent does not.
    let mapping = start::mapping()?;
    if sys::file_limit() < ROOM {
        return None;
    }
    let began = mapping.header.began.load(Ordering::Relaxed);
    let mut buffer = [0; 4096];
    let path = start::path(&mut buffer, pid, began, b".left\0")?;
    let file = sys::new_file(path)?;
    // The program's threads continue while it ends, in an interpreter that is gone, so they must
    // not get more time. A process that lived long enough was examined from outside, so the names
    // of its descriptors are already known.
    let is_known = real::now().saturating_sub(began) > LONG;
    if is_known && inflight::is_threaded() {
        sys::write(file, INCOMPLETE_EXIT_REPORT);
    } else {
        // The number of this file was free: the library did not see what was there being closed.
        let is_open =
            |fd: &u32| *fd as usize != file && mapping.open_record(&start::GROUND, *fd).is_some();
        let open = (0..mapping.numbers()).filter(is_open);
        for fd in open.take(MOST) {
            if line(file, fd).is_none() {
                break;
            }
        }
    }
    sys::close(file);
    Some(())
}

const SOL_SOCKET: usize = 1;
const SO_TYPE: usize = 3;
const SO_DOMAIN: usize = 39;
const IPPROTO_TCP: usize = 6;
/// The first byte is the state of the connection.
const TCP_INFO: usize = 11;

/// ` 2 1 10`: domain, type and, for TCP, the state. They cannot be queried once the process has
/// ended.
fn socket(text: &mut Text<'_>, fd: u32) -> Option<()> {
    let domain = sys::socket_option(fd, SOL_SOCKET, SO_DOMAIN);
    let kind = sys::socket_option(fd, SOL_SOCKET, SO_TYPE);
    let (Some(domain), Some(kind)) = (domain, kind) else {
        return Some(());
    };
    let state = sys::socket_option(fd, IPPROTO_TCP, TCP_INFO).map_or(0, |info| info & 0xff);
    for number in [domain, kind, state] {
        text.push(b" ")?;
        text.number(u64::from(number))?;
    }
    Some(())
}

/// `7 /srv/a.log` and a zero byte; for a socket also its domain, type and state.
fn line(file: usize, fd: u32) -> Option<()> {
    let mut name = [0; 4096];
    let mut text = Text {
        buffer: &mut name,
        used: 0,
    };
    text.push(b"/proc/self/fd/")?;
    text.number(u64::from(fd))?;
    text.push(b"\0")?;
    let path = CStr::from_bytes_until_nul(&name).ok()?;
    let mut link = [0; 4000];
    let length = sys::link(path, &mut link);
    if length == 0 {
        // It was closed without the library seeing it.
        return Some(());
    }
    let mut buffer = [0; 4096];
    let mut text = Text {
        buffer: &mut buffer,
        used: 0,
    };
    text.number(u64::from(fd))?;
    text.push(b" ")?;
    let link = link.get(..length)?;
    text.push(link)?;
    if link.starts_with(b"socket:") {
        socket(&mut text, fd)?;
    }
    text.push(b"\0")?;
    let Text { buffer, used } = text;
    sys::write(file, buffer.get(..used)?).then_some(())
}
