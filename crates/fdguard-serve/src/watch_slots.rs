//! Which processes are watched: the most urgent ones, as many as there are places.

use std::collections::{HashMap, HashSet};

use fdguard_proc::ProcKey;

/// A watched process gives way only to one that is this much more urgent: a watch that begins anew
/// has forgotten what it saw.
const INERTIA: f64 = 2.0;

/// What to change.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SlotChange {
    /// Begin to watch these, the most urgent first.
    pub(crate) begin: Vec<ProcKey>,
    /// Stop watching these.
    pub(crate) end: Vec<ProcKey>,
    /// How many deserve a watch and get none.
    pub(crate) left_out: u64,
}

/// Compares what is watched with what deserves it.
pub(crate) fn plan(
    watched: &HashSet<ProcKey>,
    urgent: &HashMap<ProcKey, f64>,
    places: usize,
) -> SlotChange {
    let rank = |key: &ProcKey| {
        let urgency = urgent.get(key).copied().unwrap_or(0.0);
        let is_watched = watched.contains(key);
        urgency * if is_watched { INERTIA } else { 1.0 }
    };
    let mut all: Vec<ProcKey> = urgent.keys().chain(watched).copied().collect();
    all.sort_by(|a, b| rank(b).total_cmp(&rank(a)).then_with(|| a.cmp(b)));
    all.dedup();
    let chosen: HashSet<ProcKey> = all.iter().take(places).copied().collect();
    let is_new = |key: &&ProcKey| chosen.contains(*key) && !watched.contains(*key);
    SlotChange {
        begin: all.iter().filter(is_new).copied().collect(),
        end: all
            .iter()
            .filter(|key| watched.contains(*key) && !chosen.contains(*key))
            .copied()
            .collect(),
        left_out: urgent.keys().filter(|key| !chosen.contains(*key)).count() as u64,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use fdguard_proc::ProcKey;
    use proptest::prelude::*;

    use super::plan;

    fn key(pid: u32) -> ProcKey {
        ProcKey {
            pid,
            start_ticks: 1,
        }
    }

    fn urgent(pairs: &[(u32, f64)]) -> HashMap<ProcKey, f64> {
        pairs
            .iter()
            .map(|(pid, urgency)| (key(*pid), *urgency))
            .collect()
    }

    fn watched(pids: &[u32]) -> HashSet<ProcKey> {
        pids.iter().map(|pid| key(*pid)).collect()
    }

    #[test]
    fn the_most_urgent_get_the_places() {
        let change = plan(&watched(&[]), &urgent(&[(1, 1.0), (2, 9.0), (3, 5.0)]), 2);
        assert_eq!(change.begin, [key(2), key(3)]);
        assert_eq!((change.end.len(), change.left_out), (0, 1));
    }

    #[test]
    fn a_quiet_process_stays_until_its_place_is_needed() {
        let change = plan(&watched(&[1, 2]), &urgent(&[(2, 1.0)]), 2);
        assert!(change.begin.is_empty() && change.end.is_empty());
        let change = plan(&watched(&[1, 2]), &urgent(&[(2, 1.0), (3, 1.0)]), 2);
        assert_eq!((change.begin, change.end), (vec![key(3)], vec![key(1)]));
    }

    #[test]
    fn one_that_is_hardly_more_urgent_does_not_displace_another() {
        let change = plan(&watched(&[1]), &urgent(&[(1, 1.0), (2, 1.5)]), 1);
        assert!(change.begin.is_empty());
        assert_eq!(change.left_out, 1);
        let change = plan(&watched(&[1]), &urgent(&[(1, 1.0), (2, 3.0)]), 1);
        assert_eq!((change.begin, change.end), (vec![key(2)], vec![key(1)]));
    }

    proptest! {
        #[test]
        fn there_are_never_more_than_places(
            watched in prop::collection::hash_set(0_u32..40, 0..8),
            urgent in prop::collection::hash_map(0_u32..40, 0.0..100.0, 0..30),
            places in 8_usize..12,
        ) {
            let watched: HashSet<ProcKey> = watched.into_iter().map(key).collect();
            let urgent: HashMap<ProcKey, f64> =
                urgent.into_iter().map(|(pid, urgency)| (key(pid), urgency)).collect();
            let change = plan(&watched, &urgent, places);
            let after = watched.len() + change.begin.len() - change.end.len();
            prop_assert!(after <= places);
            prop_assert!(change.left_out == 0 || after == places);
        }
    }
}
