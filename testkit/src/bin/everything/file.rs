//! Regular files by mode and position, directories, descriptors that only name a place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use serde_json::json;
use testkit::VictimReport;

pub(crate) fn open(report: &mut VictimReport, dir: &Path) -> io::Result<()> {
    let path = dir.join("plain.txt");
    fs::write(&path, [b'x'; 100])?;
    modes(report, &path)?;
    positions(report, &path)?;
    places(report, dir, &path)?;

    let inherited = File::open(&path)?;
    rustix::io::fcntl_setfd(&inherited, FdFlags::empty())?;
    report
        .hold("file kept over exec", "regular", inherited)?
        .at(&path);

    let sparse = dir.join("sparse.bin");
    let file = File::create(&sparse)?;
    file.set_len(5 << 30)?;
    report
        .hold("sparse file over 4 GiB", "regular", file)?
        .at(&sparse)
        .with("size", 5_u64 << 30);
    Ok(())
}

fn modes(report: &mut VictimReport, path: &Path) -> io::Result<()> {
    let read = OpenOptions::new().read(true).to_owned();
    let write = OpenOptions::new().write(true).to_owned();
    let both = OpenOptions::new().read(true).write(true).to_owned();
    let append = OpenOptions::new().append(true).to_owned();
    let cases = [
        ("file to read", read),
        ("file to write", write),
        ("file to read and write", both),
        ("file to append", append),
    ];
    for (what, options) in cases {
        report
            .hold(what, "regular", options.open(path)?)?
            .at(path)
            .with("pos", 0)
            .with("size", 100)
            .with("links", 1)
            .with("locks", json!([]));
    }
    Ok(())
}

fn positions(report: &mut VictimReport, path: &Path) -> io::Result<()> {
    let mut sought = File::open(path)?;
    sought.seek(SeekFrom::Start(42))?;
    report
        .hold("file at a position", "regular", sought)?
        .at(path)
        .with("pos", 42);

    let mut beyond = File::open(path)?;
    beyond.seek(SeekFrom::Start(7 << 32))?;
    report
        .hold("file at a position beyond its end", "regular", beyond)?
        .at(path)
        .with("pos", 7_u64 << 32);

    let log = path.with_file_name("appended.log");
    let mut appended = OpenOptions::new().append(true).create(true).open(&log)?;
    appended.write_all(b"one line\n")?;
    report
        .hold("file appended to", "regular", appended)?
        .at(&log)
        .with("pos", 9)
        .with("size", 9);
    Ok(())
}

fn places(report: &mut VictimReport, dir: &Path, path: &Path) -> io::Result<()> {
    report
        .hold("directory", "directory", File::open(dir)?)?
        .at(dir);
    report
        .hold("place of a file", "regular", place(path)?)?
        .at(path);
    report
        .hold("place of a directory", "directory", place(dir)?)?
        .at(dir);
    Ok(())
}

fn place(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}
