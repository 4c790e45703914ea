//! How long a start takes: the keeper's fork, the program's fork and its exec, until the owner
//! knows that it runs. For comparison it also measures the standard library's `Command`, which has
//! no keeper. Prints medians. `start_latency [RUNS] [MIB]`, where MIB is the memory touched in the
//! owner.

#![expect(clippy::print_stdout, reason = "the figures are its output")]
#![expect(
    clippy::expect_used,
    reason = "a measurement that cannot be made stops"
)]

use std::process::Command;
use std::time::{Duration, Instant};

use fdguard_process::plan::{Plan, SessionKind};
use fdguard_process::tree::Tree;

fn main() {
    let mut words = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok());
    let runs: usize = words.next().unwrap_or(200);
    let memory = vec![1_u8; words.next().unwrap_or(0) << 20];
    for cgroup in [false, true] {
        let plan = Plan {
            command: vec!["/bin/sleep".into(), "1000".into()],
            environment: Vec::new(),
            dir: None,
            stdio: [None, None, None],
            handed: Vec::new(),
            soft_limit: None,
            group: SessionKind::Session,
            cgroup,
            terminal: false,
            limits: fdguard_process::plan::TreeLimits::default(),
        };
        let mut mechanism = None;
        let times = (0..runs).map(|_| {
            let before = Instant::now();
            let tree = Tree::start(&plan).expect("a start");
            let took = before.elapsed();
            mechanism = Some(tree.mechanism());
            took
        });
        let text = figures(times.collect());
        println!("Tree::start {mechanism:?} {text}");
    }
    let times = (0..runs).map(|_| {
        let before = Instant::now();
        let mut child = Command::new("/bin/sleep")
            .arg("1000")
            .spawn()
            .expect("a start");
        let took = before.elapsed();
        child.kill().expect("a kill");
        child.wait().expect("its end");
        took
    });
    println!("std::process::Command {}", figures(times.collect()));
    drop(std::hint::black_box(memory));
}

fn figures(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let (median, worst) = (times.get(times.len() / 2), times.last());
    format!("runs={} median={median:?} worst={worst:?}", times.len())
}
