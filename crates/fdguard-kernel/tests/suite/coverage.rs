//! Every way to open and to close a descriptor: at each quiet moment the events have produced the
//! same tables as `/proc` shows.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use fdguard_kernel::{KernelTracer, LostCounts, Occurrence, StackMode, TracerOptions, TracerScope};

use super::load;
use super::model::Model;

/// The moments, in order; io_uring may be forbidden.
const FIRST: &str = "start";
const LAST: &str = "end";

/// Runs the program and compares at each quiet moment; all occurrences of its first process.
fn compare_all(tracer: &mut KernelTracer) -> Vec<(String, Occurrence)> {
    let program = testkit::c_victim("every_call");
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut model = Model::default();
    let mut moments = Vec::new();
    let mut occurrences = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let at = line
            .find(|c: char| c.is_ascii_digit() && line.contains('/'))
            .unwrap();
        // The name ends before the first PID/TID.
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let threads = words
            .iter()
            .position(|word| word.contains('/'))
            .unwrap_or(at);
        let threads = words.split_off(threads);
        let moment = words.join(" ");
        tracer
            .drain(&mut |event| {
                model.apply(&event);
                if event.pid == child.id() {
                    occurrences.push((moment.clone(), event.what));
                }
            })
            .unwrap();
        assert_eq!(tracer.lost(), LostCounts::default());
        for thread in threads {
            let (pid, tid) = thread.split_once('/').unwrap();
            model.compare(&moment, pid.parse().unwrap(), tid.parse().unwrap());
        }
        moments.push(moment);
        input.write_all(b"\n").unwrap();
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(moments.first().map(String::as_str), Some(FIRST));
    assert_eq!(moments.last().map(String::as_str), Some(LAST));
    occurrences
}

#[test]
fn events_and_proc_show_the_same_tables_at_every_quiet_moment() {
    let Some(mut tracer) = load(&TracerOptions::default()) else {
        return;
    };
    // What this process starts is followed.
    tracer.follow(std::process::id(), StackMode::None).unwrap();
    let occurrences = compare_all(&mut tracer);
    let during = |name: &str| {
        let found = occurrences.iter().filter(|(moment, _)| moment == name);
        found.map(|(_, what)| what.clone()).collect::<Vec<_>>()
    };
    let twice = during("close twice");
    let bad: Vec<_> = twice
        .iter()
        .filter_map(|what| match what {
            Occurrence::Closed { fd, errno: 9, .. } => Some(fd.cast_signed()),
            _ => None,
        })
        .collect();
    assert_eq!(bad, [120, -1]);
    let bad = during("bad use");
    assert!(
        bad.contains(&Occurrence::BadUse { fd: 777, call: 0 }),
        "{bad:?}"
    );
}

#[test]
fn the_same_holds_when_the_whole_host_is_reported() {
    let options = TracerOptions {
        scope: TracerScope::Host,
        mode: StackMode::None,
        ..TracerOptions::default()
    };
    let Some(mut tracer) = load(&options) else {
        return;
    };
    // The tests' own fork is not reported: its child is known from the first exec on.
    compare_all(&mut tracer);
}
