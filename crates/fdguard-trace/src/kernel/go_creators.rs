//! Whether the creators of goroutines are worth their price. To see each new goroutine costs the
//! program an exception, which a server pays with every request. Most programs open in their own
//! code, or on goroutines that it started: their lines are known without (decision 112).

use std::collections::{BTreeMap, HashMap};

use fdguard_core::blame;
use fdguard_kernel::{CapturedStack, GoProbe, KernelTracer};

use crate::symbol::Symbols;
use crate::table::RawFrame;

/// After this many goroutines that no open needed, they are not seen any more.
const UNNEEDED: u64 = 8192;

/// The Go programs of a trace.
#[derive(Debug, Default)]
pub(super) struct GoCreators {
    /// The program of each process.
    processes: HashMap<u32, GoProbe>,
    /// How many goroutines of each program had been seen when an open last needed a creator.
    needed: BTreeMap<GoProbe, u64>,
}

impl GoCreators {
    /// A process runs a program that is probed.
    pub(super) fn add(&mut self, pid: u32, probe: GoProbe) {
        self.processes.insert(pid, probe);
        self.needed.entry(probe).or_insert(0);
    }

    /// A process has ended.
    pub(super) fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Whether anything is known of this process.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// A process opened something on a goroutine whose creator has to be known.
    pub(super) fn need(&mut self, pid: u32, tracer: &mut KernelTracer) {
        let Some(probe) = self.processes.get(&pid).copied() else {
            return;
        };
        let Ok((is_attached, created)) = tracer.probe_state(probe) else {
            return;
        };
        self.needed.insert(probe, created);
        if !is_attached {
            // If it fails now, the next open tries again.
            drop(tracer.set_probe(probe, true));
        }
    }

    /// Detaches the probes that nothing needs.
    pub(super) fn relieve(&self, tracer: &mut KernelTracer) {
        for (probe, needed) in &self.needed {
            if let Ok((true, created)) = tracer.probe_state(*probe)
                && created.saturating_sub(*needed) > UNNEEDED
            {
                // Without effect the program only pays more.
                drop(tracer.set_probe(*probe, false));
            }
        }
    }
}

/// Whether a stack leads to the program's own code only through the creators of its goroutine.
/// `frames` are those of the goroutine itself, then `Creator` and the `go` statement.
pub(super) fn needs_creators(
    stack: &CapturedStack,
    frames: &[RawFrame],
    symbols: &mut Symbols,
) -> bool {
    let is_created = stack.goroutine.as_ref().is_some_and(|one| one.id > 1);
    if !is_created {
        return false;
    }
    let named = symbols.name(first_statement(frames));
    blame::own_frames(&named).next().is_none()
}

/// The frames up to the `go` statement that created the goroutine.
pub(super) fn first_statement(frames: &[RawFrame]) -> &[RawFrame] {
    let is_creator = |frame: &RawFrame| matches!(frame, RawFrame::Creator);
    match frames.iter().position(is_creator) {
        Some(at) => frames.get(..at + 2).unwrap_or(frames),
        None => frames,
    }
}

#[cfg(test)]
mod tests {
    use super::first_statement;
    use crate::table::RawFrame;

    #[test]
    fn creators_begin_with_the_go_statement() {
        let frames = |creators: usize| {
            let mut frames = vec![RawFrame::Unknown(1), RawFrame::Unknown(2)];
            for _ in 0..creators {
                frames.extend([
                    RawFrame::Creator,
                    RawFrame::Unknown(3),
                    RawFrame::Unknown(4),
                ]);
            }
            frames
        };
        assert_eq!(first_statement(&frames(0)), frames(0));
        assert_eq!(first_statement(&frames(2)), &frames(1)[..4]);
        assert_eq!(first_statement(&[RawFrame::Creator]), [RawFrame::Creator]);
    }
}
