//! Exits at the first line it reads, whatever its contents, and without an answer. Argument: how
//! many counters it holds until then (100). It closes none of them: the kernel does.

use std::env;
use std::io;
use std::mem::ManuallyDrop;

use rustix::event::{EventfdFlags, eventfd};
use testkit::{VictimReport, next_line};

fn main() -> io::Result<()> {
    let amount = env::args().nth(1).map_or(Ok(100), |arg| arg.parse::<u32>());
    let mut report = ManuallyDrop::new(VictimReport::new()?);
    for count in 0..amount.map_err(io::Error::other)? {
        let counter = eventfd(count, EventfdFlags::CLOEXEC)?;
        report
            .hold("counter", "eventfd", counter)?
            .with("count", count);
    }
    report.announce()?;
    next_line().map(drop)
}
