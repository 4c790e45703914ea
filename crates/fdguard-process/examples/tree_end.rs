//! How long it takes to end the tree that is hard to end, from the request to the report that
//! nothing is left: KILL at once, without and with a cgroup. Prints medians. `tree_end [RUNS]`

#![expect(clippy::print_stdout, reason = "the figures are its output")]
#![expect(
    clippy::expect_used,
    reason = "a measurement that cannot be made stops"
)]

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_process::plan::{Plan, SessionKind};
use fdguard_process::tree::{Mechanism, StopPlan, Tree, TreeEvent};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};

fn main() {
    let runs = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let runs: usize = runs.unwrap_or(50);
    for hopper in [false, true] {
        for cgroup in [false, true] {
            let lives: Vec<_> = (0..runs).map(|_| one_life(cgroup, hopper)).collect();
            let mut times: Vec<_> = lives.iter().map(|life| life.0).collect();
            times.sort_unstable();
            let mechanism = lives.first().map(|life| life.1);
            let (median, worst) = (times.get(times.len() / 2), times.last());
            println!("hopper={hopper} {mechanism:?} runs={runs} median={median:?} worst={worst:?}");
        }
    }
}

fn one_life(cgroup: bool, hopper: bool) -> (Duration, Mechanism) {
    let (out, theirs) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    let program = testkit::c_victim("family").into_os_string();
    let mut command = vec![program, "measured".into()];
    if !hopper {
        command.push("still".into());
    }
    let plan = Plan {
        command,
        environment: Vec::new(),
        dir: None,
        stdio: [None, Some(Arc::new(theirs)), None],
        handed: Vec::new(),
        soft_limit: None,
        group: SessionKind::Session,
        cgroup,
        terminal: false,
        limits: fdguard_process::plan::TreeLimits::default(),
    };
    let mut tree = Tree::start(&plan).expect("a start");
    File::from(out).read_exact(&mut [0; 3]).expect("up");
    let before = Instant::now();
    tree.stop(StopPlan {
        signal: libc::SIGKILL,
        grace: Duration::ZERO,
    });
    while !matches!(tree.told(), Some(TreeEvent::Empty { .. })) {
        let mut fds = [PollFd::from_borrowed_fd(tree.fd(), PollFlags::IN)];
        poll(&mut fds, None).expect("a wait");
    }
    (before.elapsed(), tree.mechanism())
}
