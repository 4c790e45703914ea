//! Processes that have exited and were not reaped.

use fdguard_core::{Gap, Pid};

use super::files::{Files, Refusal};
use crate::budget::Observation;

/// Exited children of living processes: those are not among the living.
pub(super) fn count(files: &mut Files, alive: &[Pid]) -> Observation<u64> {
    let mut zombies = 0;
    for pid in alive {
        let children = match files.children(*pid) {
            Ok(children) => children,
            Err(Refusal::Gone) => continue,
            Err(refusal) => return Observation::Hidden(zombie_gap(*pid, refusal)),
        };
        let others = children.into_iter().filter(|child| !alive.contains(child));
        let ended = others.filter(|child| files.state(*child).is_ok_and(|state| state.zombie));
        zombies += ended.count() as u64;
    }
    Observation::Seen(zombies)
}

fn zombie_gap(pid: Pid, refusal: Refusal) -> Gap {
    let what = format!("zombie children of process {pid}");
    if refusal == Refusal::Other(rustix::io::Errno::NOSYS) {
        let why = "this kernel does not list child processes (CONFIG_PROC_CHILDREN)";
        return Gap::new(
            what,
            why,
            "set zombies=off, or use a kernel with CONFIG_PROC_CHILDREN",
        );
    }
    refusal.gap(what)
}
