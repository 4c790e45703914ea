//! Devices and terminals.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{OFlags, major, minor};
use rustix::pty::OpenptFlags;
use testkit::VictimReport;

pub(crate) fn open(report: &mut VictimReport) -> io::Result<()> {
    for (path, device) in [("/dev/null", "1:3"), ("/dev/zero", "1:5")] {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let holding = report.hold(path, "chardev", file)?;
        holding.at(Path::new(path)).with("device", device);
    }
    block(report)?;
    match terminal() {
        Ok((master, slave, path)) => pair(report, master, slave, &path),
        refused => report
            .hold_if_given("pseudo-terminal", "pty-master", refused.map(|(fd, ..)| fd))
            .map(drop),
    }
}

fn block(report: &mut VictimReport) -> io::Result<()> {
    let path = Path::new("/dev/loop0");
    let opened = OpenOptions::new().read(true).open(path);
    let opened = opened.map(OwnedFd::from);
    if let Some(holding) = report.hold_if_given("block device", "blockdev", opened)? {
        holding.at(path).with("device", "7:0");
    }
    Ok(())
}

fn terminal() -> io::Result<(OwnedFd, OwnedFd, String)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let path = rustix::pty::ptsname(&master, Vec::new())?;
    let path = path.into_string().map_err(io::Error::other)?;
    let slave = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::NOCTTY.bits().cast_signed())
        .open(&path)?;
    Ok((master, slave.into(), path))
}

fn pair(report: &mut VictimReport, master: OwnedFd, slave: OwnedFd, path: &str) -> io::Result<()> {
    let index = path.strip_prefix("/dev/pts/").unwrap_or(path);
    let index: u32 = index.parse().map_err(io::Error::other)?;
    report
        .hold("pseudo-terminal, master", "pty-master", master)?
        .with("index", index);
    let device = rustix::fs::fstat(&slave)?.st_rdev;
    report
        .hold("pseudo-terminal, slave", "tty", slave)?
        .at(Path::new(path))
        .with("device", format!("{}:{}", major(device), minor(device)));
    Ok(())
}
