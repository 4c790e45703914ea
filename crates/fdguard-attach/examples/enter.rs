//! Enters a process once: `enter PID LIBRARY ENTRY [ARGUMENT]`. For the tests of this crate: with
//! `KILL_AT=STEP` (or `STEP:2` for its second time) it kills itself at that step, and with
//! `STOP_AT` it reports the step and waits there for a line. `TIMES` prints when each step is done.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for tests"
)]

use std::env;
use std::ffi::CString;
use std::fs;
use std::io::stdin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use fdguard_attach::{Step, Target};
use rustix::process::{Signal, getpid, kill_process};

/// A step that is watched, and its how-manieth time.
struct WatchedStep {
    name: String,
    times: AtomicU32,
}

impl WatchedStep {
    fn from_env(variable: &str) -> Option<Self> {
        let value = env::var(variable).ok()?;
        let (name, times) = value.split_once(':').unwrap_or((&value, "1"));
        Some(Self {
            name: name.to_owned(),
            times: AtomicU32::new(times.parse().unwrap()),
        })
    }

    fn is_now(&self, step: Step) -> bool {
        format!("{step:?}") == self.name && self.times.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (kill_at, stop_at) = (
        WatchedStep::from_env("KILL_AT"),
        WatchedStep::from_env("STOP_AT"),
    );
    let start = Instant::now();
    let timed = env::var_os("TIMES").is_some();
    let on_step = |step| {
        if timed {
            println!("{:>8} {step:?}", start.elapsed().as_micros());
        }
        if kill_at.as_ref().is_some_and(|watched| watched.is_now(step)) {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        if stop_at.as_ref().is_some_and(|watched| watched.is_now(step)) {
            println!("at {step:?}");
            stdin().read_line(&mut String::new()).unwrap();
        }
    };
    let [pid, library, entry, rest @ ..] = arguments.as_slice() else {
        println!("usage: enter PID LIBRARY ENTRY [ARGUMENT]");
        return;
    };
    let argument = rest.first().map_or("", String::as_str);
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
            "returned {} stop_us {} thread {} tries {}",
            call.returned,
            call.stop.as_micros(),
            call.thread,
            call.tries
        ),
        Err(error) => println!("error: {error}"),
    }
}
