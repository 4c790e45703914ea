//! Children that the cycles leave behind.

use fdguard_core::children::finding::ChildPile;
use fdguard_core::proof::cycles::{self, CycleOutcome};

use super::server::Server;

/// The lines that leave a child in each cycle. `begins` are the times at which the cycles began.
pub(super) fn piles(server: &mut Server, begins: &[u64], requests: u64) -> Vec<ChildPile> {
    let Server::Launched(launched) = server else {
        return Vec::new();
    };
    let left = launched.traced.session.child_lines().into_iter();
    left.filter_map(|(pile, starts)| judge(pile, &starts, begins, requests))
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
