//! Holds at least one descriptor of every kind that the kernel offers and reports what each one is.
//! Kinds that the kernel refuses here are listed under `refused` instead.

mod device;
mod event;
mod file;
mod inet;
mod kernel;
mod lock;
mod name;
mod pipe;
mod process;
mod socket;
mod sqlite;
mod unix;

use std::env;
use std::io;

use testkit::VictimReport;

fn main() -> io::Result<()> {
    let dir = env::temp_dir().canonicalize()?;
    let mut report = VictimReport::new()?;
    file::open(&mut report, &dir)?;
    name::open(&mut report, &dir)?;
    lock::open(&mut report, &dir)?;
    sqlite::open(&mut report, &dir)?;
    device::open(&mut report)?;
    pipe::open(&mut report, &dir)?;
    inet::open(&mut report)?;
    unix::open(&mut report, &dir)?;
    socket::open(&mut report)?;
    event::open(&mut report, &dir)?;
    let children = process::open(&mut report)?;
    let queue = kernel::open(&mut report, &dir)?;
    report.announce_and_wait()?;
    kernel::clean_up(queue)?;
    process::clean_up(children)
}
