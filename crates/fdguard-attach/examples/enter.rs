//! Enters a process once: `enter PID LIBRARY ENTRY [ARGUMENT]`, where `\0` in the argument stands
//! for a null byte. For the tests of this crate: with `KILL_AT=N` it prints its N-th step and kills
//! itself there, counted from 0. `TIMES` prints when each step is done.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for tests"
)]

use std::env;
use std::ffi::CString;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use fdguard_attach::{Step, Target};
use rustix::process::{Signal, getpid, kill_process};

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let kill_at = env::var("KILL_AT").map(|at| at.parse::<u32>().unwrap());
    let steps = AtomicU32::new(0);
    let start = Instant::now();
    let timed = env::var_os("TIMES").is_some();
    let on_step = |step: Step| {
        if timed {
            println!("{:>8} {step:?}", start.elapsed().as_micros());
        }
        if kill_at == Ok(steps.fetch_add(1, Ordering::Relaxed)) {
            println!("{step:?}");
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    };
    let [pid, library, entry, rest @ ..] = arguments.as_slice() else {
        println!("usage: enter PID LIBRARY ENTRY [ARGUMENT]");
        return;
    };
    let argument = rest.first().map_or("", String::as_str).replace("\\0", "\0");
    let library = fs::read(library).unwrap();
    let entry = CString::new(entry.as_str()).unwrap();
    let target = match Target::examine(pid.parse().unwrap()) {
        Ok(target) => target,
        Err(refusal) => {
            println!("refused: {refusal}");
            println!("remedy: {}", refusal.remedy().unwrap_or("none"));
            return;
        }
    };
    match target.call_observed(&library, &entry, argument.as_bytes(), &on_step) {
        Ok(call) => println!(
            "returned {} stop_us {} total_us {} stops {} waits {} thread {} tries {}",
            call.returned,
            call.stop.as_micros(),
            call.stop_total.as_micros(),
            call.stops,
            call.waits,
            call.thread,
            call.tries
        ),
        Err(error) => println!("error: {error}"),
    }
}
