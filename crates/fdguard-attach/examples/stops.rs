//! Prints how long a thread is stopped by a call: `stops LIBRARY ENTRY PID…`, twenty calls each.
//! Each call examines the process anew, as a command does.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for measurements"
)]

use std::env;
use std::ffi::CString;
use std::fs;
use std::time::Duration;

use fdguard_attach::Target;

const CALLS: usize = 20;

fn main() {
    let mut arguments = env::args().skip(1);
    let library = fs::read(arguments.next().unwrap()).unwrap();
    let entry = CString::new(arguments.next().unwrap()).unwrap();
    for pid in arguments {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let mut stops = Vec::new();
        for _call in 0..CALLS {
            let target = Target::examine(pid.parse().unwrap());
            let call = target
                .map_err(Into::into)
                .and_then(|target| target.call(&library, &entry, b""));
            match call {
                Ok(call) => stops.push(call.stop),
                Err(error) => println!("{}: {error}", name.trim()),
            }
        }
        stops.sort_unstable();
        let milliseconds = |at: usize| {
            let stop = stops.get(at).copied().unwrap_or(Duration::ZERO);
            stop.as_secs_f64() * 1e3
        };
        println!(
            "{:<16} min {:.2} median {:.2} max {:.2} ms ({} calls)",
            name.trim(),
            milliseconds(0),
            milliseconds(stops.len() / 2),
            milliseconds(stops.len().saturating_sub(1)),
            stops.len()
        );
    }
}
