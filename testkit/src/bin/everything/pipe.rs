//! Pipes with and without a name.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::pipe::PipeFlags;
use serde_json::{Value, json};
use testkit::{VictimReport, number};

pub(crate) fn open(report: &mut VictimReport, dir: &Path) -> io::Result<()> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (to_read, to_write) = (holder(&read), holder(&write));
    report
        .hold("pipe, read end", "pipe", read)?
        .with("end", "read")
        .with("peer", json!([to_write]));
    report
        .hold("pipe, write end", "pipe", write)?
        .with("end", "write")
        .with("peer", json!([to_read]));
    let (widowed, end) = rustix::pipe::pipe()?;
    drop(end);
    report
        .hold("pipe, read end without a writer", "pipe", widowed)?
        .with("end", "read");
    named(report, dir)
}

fn named(report: &mut VictimReport, dir: &Path) -> io::Result<()> {
    let path = dir.join("named-pipe");
    make(&path)?;
    let read = open_named(&path, OFlags::RDONLY | OFlags::NONBLOCK)?;
    let write = open_named(&path, OFlags::WRONLY)?;
    let (to_read, to_write) = (holder(&read), holder(&write));
    report
        .hold("named pipe, read end", "fifo", read)?
        .at(&path)
        .with("end", "read")
        .with("peer", json!([to_write]));
    report
        .hold("named pipe, write end", "fifo", write)?
        .at(&path)
        .with("end", "write")
        .with("peer", json!([to_read]));

    let path = dir.join("named-pipe-both");
    make(&path)?;
    report
        .hold(
            "named pipe, both ends",
            "fifo",
            open_named(&path, OFlags::RDWR)?,
        )?
        .at(&path)
        .with("end", "both");
    Ok(())
}

fn make(path: &Path) -> io::Result<()> {
    let mode = Mode::from_raw_mode(0o600);
    Ok(rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0)?)
}

fn open_named(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        path,
        flags | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

fn holder(fd: &OwnedFd) -> Value {
    json!({"pid": std::process::id(), "fd": number(fd)})
}
