//! Files with locks of every kind.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::FlockOperation;
use serde_json::{Value, json};
use testkit::{VictimReport, sys};

pub(crate) fn open(report: &mut VictimReport, dir: &Path) -> io::Result<()> {
    let file = create(dir, "locked-range")?;
    sys::lock_range(&file, 10, 10, false)?;
    sys::lock_range(&file, 100, 0, false)?;
    let locks = json!([lock("POSIX", 10, Some(19)), lock("POSIX", 100, None)]);
    hold(report, dir, "locked-range", file, locks)?;

    let file = create(dir, "locked-by-file")?;
    sys::lock_range(&file, 0, 1, true)?;
    let locks = json!([lock("OFDLCK", 0, Some(0))]);
    hold(report, dir, "locked-by-file", file, locks)?;

    let file = create(dir, "flocked")?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    let locks = json!([lock("FLOCK", 0, None)]);
    hold(report, dir, "flocked", file, locks)?;

    let file = create(dir, "flocked-shared")?;
    rustix::fs::flock(&file, FlockOperation::LockShared)?;
    let locks = json!([{"kind": "FLOCK", "access": "READ"}]);
    hold(report, dir, "flocked-shared", file, locks)?;

    drop(create(dir, "leased")?);
    let path = dir.join("leased");
    let file = File::open(&path)?;
    let leased = sys::read_lease(&file).map(|()| file.into());
    if let Some(holding) = report.hold_if_given("leased", "regular", leased)? {
        let locks = json!([{"kind": "LEASE", "access": "READ"}]);
        holding.at(&path).with("locks", locks);
    }
    Ok(())
}

fn create(dir: &Path, name: &str) -> io::Result<File> {
    let file = File::create(dir.join(name))?;
    file.set_len(1000)?;
    Ok(file)
}

fn hold(
    report: &mut VictimReport,
    dir: &Path,
    name: &str,
    file: File,
    locks: Value,
) -> io::Result<()> {
    let holding = report.hold(name, "regular", file)?;
    holding.at(&dir.join(name)).with("locks", locks);
    Ok(())
}

fn lock(kind: &str, start: u64, end: Option<u64>) -> Value {
    json!({"kind": kind, "access": "WRITE", "start": start, "end": end})
}
