//! Keeps a few descriptor numbers and changes what they refer to as fast as it can. Path, inode,
//! size, position and mode of every file belong together, so that a record mixed from two files can
//! be detected. Argument: how many numbers (16).
//!
//! The line adds `slots` (the numbers that change), `scratch` (used in passing), `files` (path,
//! ino, size, pos, mode of each) and `kinds` (the other classes). Any line is answered with `laps`.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::DupFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use serde_json::{Value, json};
use testkit::{VictimReport, next_line, number, text};

const FILES: u64 = 64;
/// Numbers from here on are used only temporarily.
const FIRST_SLOT: i32 = 20;

static STOP: AtomicBool = AtomicBool::new(false);
static LAPS: AtomicU64 = AtomicU64::new(0);

fn main() -> io::Result<()> {
    let slots: i32 = env::args()
        .nth(1)
        .map_or(Ok(16), |arg| arg.parse())
        .map_err(io::Error::other)?;
    let dir = env::temp_dir().canonicalize()?;
    let files = (0..FILES)
        .map(|index| make(&dir, index))
        .collect::<io::Result<Vec<_>>>()?;
    let mut report = VictimReport::new()?;
    report
        .with(
            "slots",
            (FIRST_SLOT..FIRST_SLOT + slots).collect::<Vec<_>>(),
        )
        .with("scratch", json!([3, 4]))
        .with("files", files)
        .with("kinds", json!(["eventfd", "pipe", "udp", "unix"]));
    let worker = thread::spawn(move || churn(&dir, slots));
    while LAPS.load(Ordering::Relaxed) == 0 && !worker.is_finished() {
        thread::yield_now();
    }
    report.announce()?;
    while next_line()?.is_some() {
        VictimReport::say(&json!({"laps": LAPS.load(Ordering::Relaxed)}))?;
    }
    STOP.store(true, Ordering::Relaxed);
    worker
        .join()
        .map_err(|_panic| io::Error::other("the worker panicked"))?
}

fn path_of(dir: &Path, index: u64) -> PathBuf {
    dir.join(format!("churn-{index:04}"))
}

fn make(dir: &Path, index: u64) -> io::Result<Value> {
    let path = path_of(dir, index);
    let file = File::create(&path)?;
    file.set_len(1000 + index)?;
    let ino = file.metadata()?.ino();
    let mode = if writes(index) { "rw" } else { "r" };
    let size = 1000 + index;
    Ok(json!({"path": text(&path), "ino": ino, "size": size, "pos": index, "mode": mode}))
}

fn writes(index: u64) -> bool {
    index % 2 == 1
}

fn churn(dir: &Path, slots: i32) -> io::Result<()> {
    let mut held: Vec<Option<OwnedFd>> = (0..slots).map(|_| None).collect();
    let mut turn = 0;
    while !STOP.load(Ordering::Relaxed) {
        for (slot, at) in held.iter_mut().zip(FIRST_SLOT..) {
            let fresh = open(dir, turn)?;
            // Every fifth time the number is free for a moment; else it changes in one step.
            if turn.is_multiple_of(5) {
                *slot = None;
            }
            match slot {
                Some(old) => rustix::io::dup3(&fresh, old, DupFlags::CLOEXEC)?,
                None => *slot = Some(placed(&fresh, at)?),
            }
            turn += 1;
        }
        LAPS.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn placed(fresh: &OwnedFd, at: i32) -> io::Result<OwnedFd> {
    let fd = rustix::io::fcntl_dupfd_cloexec(fresh, at)?;
    if number(&fd) != at.unsigned_abs() {
        return Err(io::Error::other("the number was taken by somebody else"));
    }
    Ok(fd)
}

fn open(dir: &Path, turn: u64) -> io::Result<OwnedFd> {
    let index = turn / 2 % FILES;
    if turn.is_multiple_of(2) {
        let mut file = OpenOptions::new()
            .read(true)
            .write(writes(index))
            .open(path_of(dir, index))?;
        file.seek(SeekFrom::Start(index))?;
        return Ok(file.into());
    }
    Ok(match turn / 2 % 4 {
        0 => eventfd(7, EventfdFlags::CLOEXEC)?,
        1 => rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?.0,
        2 => socket(AddressFamily::INET)?,
        _ => socket(AddressFamily::UNIX)?,
    })
}

fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(
        family,
        SocketType::DGRAM,
        flags,
        None,
    )?)
}
