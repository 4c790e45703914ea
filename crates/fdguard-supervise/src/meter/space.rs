//! Memory of all processes of a service.

use std::time::Duration;

use fdguard_core::Pid;
use fdguard_core::count::as_f64;

use super::files::{Files, Refusal};
use crate::budget::{MemoryUse, Observation};

/// To count shared pages once, the kernel walks all of the memory: at most this often.
const EXACT_EVERY: Duration = Duration::from_secs(5);
/// Earlier only if it has grown by this factor since.
const GROWN: f64 = 1.1;

/// The last exact measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    exact: Option<Exact>,
}

#[derive(Clone, Copy, Debug)]
struct Exact {
    at: Duration,
    /// The sum at that time, with shared pages counted for each process.
    resident: u64,
    bytes: u64,
}

impl Memory {
    /// The sum of resident memory is an upper bound: only if that exceeds the level is it worth
    /// counting shared pages once.
    pub(super) fn measure(
        &mut self,
        files: &mut Files,
        at: Duration,
        pids: &[Pid],
        level: f64,
    ) -> Observation<MemoryUse> {
        let mut resident = 0_u64;
        for pid in pids {
            match files.resident(*pid) {
                Ok(bytes) => resident = resident.saturating_add(bytes),
                Err(Refusal::Gone) => {}
                Err(refusal) => {
                    return Observation::Hidden(refusal.gap(format!("memory of process {pid}")));
                }
            }
        }
        let most = MemoryUse {
            bytes: resident,
            exact: pids.len() < 2,
        };
        if most.exact || as_f64(resident) < level {
            return Observation::Seen(most);
        }
        let fresh = self.exact.filter(|exact| {
            at.saturating_sub(exact.at) < EXACT_EVERY
                && as_f64(resident) < as_f64(exact.resident) * GROWN
        });
        let bytes = fresh.map(|exact| exact.bytes).or_else(|| {
            let bytes = exactly(files, pids)?;
            self.exact = Some(Exact {
                at,
                resident,
                bytes,
            });
            Some(bytes)
        });
        Observation::Seen(bytes.map_or(most, |bytes| MemoryUse { bytes, exact: true }))
    }
}

/// Absent if one of them cannot be read.
fn exactly(files: &mut Files, pids: &[Pid]) -> Option<u64> {
    let mut sum = 0_u64;
    for pid in pids {
        match files.proportional(*pid) {
            Ok(bytes) => sum = sum.saturating_add(bytes),
            Err(Refusal::Gone) => {}
            Err(_) => return None,
        }
    }
    Some(sum)
}
