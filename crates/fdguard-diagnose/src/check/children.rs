//! Children that a program leaves behind, judged by the lines that started them.

use fdguard_core::children::finding::ChildPile;
use fdguard_core::proof::cycles::{self, CycleOutcome};
use fdguard_core::proof::process::{Fate, LeftoverProcess};

/// A line that has waited for this many children usually waits.
const HABIT: u64 = 8;
/// This many children may be the last ones: one for each thread that starts children.
const LAST: u64 = 2;

/// Drops zombies of lines that wait for their children. Each line comes with the times at which it
/// started those that are left.
pub fn forgive_last_zombies(processes: &mut Vec<LeftoverProcess>, lines: &[(ChildPile, Vec<u64>)]) {
    let waits = |one: &LeftoverProcess| {
        let mut lines = lines.iter().map(|(line, _)| line);
        lines.any(|line| is_habit(line) && is_of(one, line))
    };
    processes.retain(|one| one.fate != Fate::Zombie || !waits(one));
}

/// Whether a line waits for its children. The program may end after its last children and before
/// the wait for them, as with threads that Python stops when it shuts down.
fn is_habit(line: &ChildPile) -> bool {
    line.waited >= HABIT && line.started.saturating_sub(line.waited) <= LAST
}

fn is_of(one: &LeftoverProcess, line: &ChildPile) -> bool {
    let culprit = one
        .origin
        .as_ref()
        .and_then(|origin| origin.culprit.as_ref());
    culprit.is_some() && culprit == line.origin.culprit.as_ref()
}

/// The lines that leave a child in each cycle. `begins` are the times at which the cycles began.
#[must_use]
pub fn piles_per_cycle(
    lines: Vec<(ChildPile, Vec<u64>)>,
    begins: &[u64],
    requests: u64,
) -> Vec<ChildPile> {
    let judged = lines.into_iter();
    judged
        .filter_map(|(pile, starts)| judge(pile, &starts, begins, requests))
        .collect()
}

fn judge(mut pile: ChildPile, starts: &[u64], begins: &[u64], requests: u64) -> Option<ChildPile> {
    let mut series = vec![0_u64; begins.len()];
    for start in starts {
        let cycle = begins.iter().take_while(|begin| *begin <= start).count();
        if let Some(count) = cycle.checked_sub(1).and_then(|at| series.get_mut(at)) {
            *count += 1;
        }
    }
    match cycles::judge(&series) {
        CycleOutcome::Leaks(rate) => {
            pile.per_cycle = Some((rate, requests));
            // Children of the warm-up do not count; neither do its descriptors.
            let left: u64 = series.iter().sum();
            pile.running = left.saturating_sub(pile.zombies);
            Some(pile)
        }
        _ => None,
    }
}
