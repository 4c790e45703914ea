//! Hazards that look the same. Paths through an interpreter or a library differ in frames that are
//! not shown, so one line of the program can be several paths.

use super::{Hazard, Party};
use crate::origin::Stack;

/// Makes one hazard of those with the same lines, at the place of the first.
pub(super) fn merge(hazards: Vec<(u64, Hazard)>) -> Vec<(u64, Hazard)> {
    let mut merged: Vec<(u64, Hazard)> = Vec::with_capacity(hazards.len());
    for (at, hazard) in hazards {
        let same = merged.iter_mut().find(|(_, known)| is_same(known, &hazard));
        match same {
            Some((first_at, known)) => {
                known.count = known.count.saturating_add(hazard.count);
                known.severity = known.severity.max(hazard.severity);
                known.when = known.when.min(hazard.when);
                *first_at = at.min(*first_at);
            }
            None => merged.push((at, hazard)),
        }
    }
    merged
}

/// Whether everything that a reader compares is equal. Unknown code equals nothing.
fn is_same(a: &Hazard, b: &Hazard) -> bool {
    let kind = |hazard: &Hazard| (hazard.pid, hazard.prevented, hazard.fault);
    let has_lines = stacks(a)
        .into_iter()
        .flatten()
        .any(|stack| !stack.is_empty());
    a.rule == b.rule && kind(a) == kind(b) && has_lines && stacks(a) == stacks(b)
}

fn stacks(hazard: &Hazard) -> [Option<&Stack>; 4] {
    let parties = [&hazard.opener, &hazard.closer, &hazard.user, &hazard.victim];
    parties.map(|party| party.as_ref().map(|Party { stack, .. }| stack))
}
