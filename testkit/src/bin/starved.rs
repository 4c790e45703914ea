//! Lowers its own soft limit to 32 and fills its table to the last number. The line adds `count`,
//! `soft` and `error` (the error of the next open).

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::VictimReport;

const SOFT: u64 = 32;

fn main() -> io::Result<()> {
    let limit = Rlimit {
        current: Some(SOFT),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    setrlimit(Resource::Nofile, limit)?;
    let mut report = VictimReport::new()?;
    let null = Path::new("/dev/null");
    let error = loop {
        match File::open(null) {
            Ok(file) => report.hold("filler", "chardev", file)?.at(null),
            Err(error) => break error,
        };
    };
    let count = report.count();
    report
        .with("count", count)
        .with("soft", SOFT)
        .with("error", error.to_string());
    report.announce_and_wait()
}
