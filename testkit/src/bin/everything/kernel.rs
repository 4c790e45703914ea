//! Memory, rings, counters, programs and other things only the kernel knows by name.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::MemfdFlags;
use testkit::{VictimReport, sys};

/// Opens them; returns the name of the message queue, to be removed at the end.
pub(crate) fn open(report: &mut VictimReport, dir: &Path) -> io::Result<Option<CString>> {
    memory(report)?;
    let files: [OwnedFd; 2] = [File::open(dir)?.into(), File::open(dir)?.into()];
    let ring = sys::io_uring().and_then(|ring| {
        sys::register_files(&ring, &files.each_ref())?;
        Ok(ring)
    });
    drop(files);
    if let Some(holding) = report.hold_if_given("io_uring with two files", "io_uring", ring)? {
        holding.with("files", 2).with("buffers", 0);
    }
    let namespace = File::open("/proc/self/ns/net").map(OwnedFd::from);
    let cases = [
        ("performance counter", "perf-event", sys::perf_event()),
        ("BPF map", "bpf-map", sys::bpf_map()),
        ("BPF program", "bpf-prog", sys::bpf_prog()),
        ("userfaultfd", "userfaultfd", sys::userfaultfd()),
        (
            "landlock ruleset",
            "other:[landlock-ruleset]",
            sys::landlock(),
        ),
        ("network namespace", "other:net", namespace),
    ];
    for (what, class, opened) in cases {
        report.hold_if_given(what, class, opened)?;
    }
    queue(report)
}

pub(crate) fn clean_up(queue: Option<CString>) -> io::Result<()> {
    queue.map_or(Ok(()), |name| sys::remove_message_queue(&name))
}

fn memory(report: &mut VictimReport) -> io::Result<()> {
    let memory = rustix::fs::memfd_create("fdguard-memory", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&memory, 8192)?;
    report
        .hold("memory file", "memfd", memory)?
        .with("name", "fdguard-memory")
        .with("size", 8192);
    let odd = rustix::fs::memfd_create("odd (deleted)", MemfdFlags::empty())?;
    report
        .hold("memory file with an odd name", "memfd", odd)?
        .with("name", "odd (deleted)")
        .with("size", 0);
    report.hold_if_given("secret memory", "other:secretmem", sys::secret_memory())?;
    Ok(())
}

fn queue(report: &mut VictimReport) -> io::Result<Option<CString>> {
    let name = CString::new(format!("/fdguard-victim-{}", std::process::id()))?;
    let opened = sys::message_queue(&name);
    let held = report.hold_if_given("message queue", "other:mqueue", opened)?;
    Ok(held.is_some().then_some(name))
}
