//! Once had a descriptor with the number 1500 and closed it: the table stays that large. The line
//! adds `crossed` and `table_size`, the `FDSize` of its own status.

use std::fs;
use std::io;

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::{VictimReport, number};

const FAR: i32 = 1500;

fn main() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised)?;
    let counter = eventfd(0, EventfdFlags::CLOEXEC)?;
    let far = rustix::io::fcntl_dupfd_cloexec(&counter, FAR)?;
    let crossed = number(&far);
    drop(far);
    let status = fs::read_to_string("/proc/self/status")?;
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    let size = size.and_then(|size| size.trim().parse::<u32>().ok());
    let mut report = VictimReport::new()?;
    report.hold("counter that had a far number", "eventfd", counter)?;
    report.with("crossed", crossed).with("table_size", size);
    report.announce_and_wait()
}
