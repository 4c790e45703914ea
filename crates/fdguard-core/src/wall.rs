//! The limits that a process can reach, and how close each one is.

use serde::{Deserialize, Serialize};

use crate::Snapshot;
use crate::count::as_f64;
use crate::snapshot::Ceiling;

/// The first number that `select()` cannot handle.
pub const FD_SETSIZE: u64 = 1024;

/// The limit of the numbers that `select()` can handle.
pub const SELECT: &str = "select-1024";

/// Warn above this percentage of a limit.
pub const WARNING_ABOVE: f64 = 70.0;
/// From this percentage on, new work is more likely to fail half-way than to finish.
pub const CRITICAL_FROM: f64 = 90.0;

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wall {
    /// Its name: `soft-limit`, `hard-limit`, `select-1024`, `system-files`, …
    pub name: String,
    /// Its value.
    pub at: u64,
    /// How much of it the process, or the host, uses.
    pub used: Option<u64>,
    /// What is left; 0 once it is reached.
    pub left: Option<u64>,
}

impl Wall {
    fn new(name: &str, at: Option<u64>, used: Option<u64>) -> Option<Self> {
        let at = at?;
        Some(Self {
            name: name.to_owned(),
            at,
            used,
            left: used.map(|used| at.saturating_sub(used)),
        })
    }

    /// Share of the way, in percent.
    #[must_use]
    pub fn percent(&self) -> Option<f64> {
        percent(self.used?, self.at)
    }
}

/// The condition under which a limit applies; absent where it stops every program. From outside it
/// is visible that a program could call `select()`, not that it does, and only then is number 1024
/// a limit. This is the one place that decides which limits count, for `top`, `watch`, `doctor` and
/// `run`.
#[must_use]
pub fn condition(name: &str) -> Option<&'static str> {
    (name == SELECT).then_some("if it calls select()")
}

/// `used` as a percentage of `at`, to one decimal.
#[must_use]
pub fn percent(used: u64, at: u64) -> Option<f64> {
    if at == 0 {
        return None;
    }
    let share = as_f64(used) / as_f64(at);
    Some((share * 1000.0).round() / 10.0)
}

/// Every limit that applies to this process. The two descriptor budgets are separate: the count
/// against the limits, the highest number against 1024.
#[must_use]
pub fn walls(snapshot: &Snapshot, highest: Option<u64>) -> Vec<Wall> {
    let host = &snapshot.host;
    let of = |name: &str, ceiling: Ceiling| Wall::new(name, ceiling.at, ceiling.used);
    [
        Wall::new("soft-limit", snapshot.limits.soft, snapshot.count),
        Wall::new("hard-limit", snapshot.limits.hard, snapshot.count),
        Wall::new(SELECT, Some(FD_SETSIZE), highest),
        of("system-files", host.files),
        of("ptys", host.ptys),
        of("inotify-instances", host.inotify_instances),
        of("inotify-watches", host.inotify_watches),
        of("tasks", host.tasks),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Whether a number of 1024 or more is open now, was ever open, or unknown. The table doubles and
/// never shrinks, so a table of more than 1024 slots shows that one was open.
#[must_use]
pub fn crossed_1024(highest: Option<u64>, table_size: Option<u64>) -> Option<bool> {
    match (highest, table_size) {
        (Some(highest), _) if highest >= FD_SETSIZE => Some(true),
        (_, Some(size)) => Some(size > FD_SETSIZE),
        (Some(_) | None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{condition, crossed_1024, percent};

    #[test]
    fn a_wide_table_remembers_a_high_number_that_was_closed() {
        assert_eq!(crossed_1024(Some(12), Some(2048)), Some(true));
        assert_eq!(crossed_1024(Some(1023), Some(1024)), Some(false));
        assert_eq!(crossed_1024(Some(1024), None), Some(true));
        assert_eq!(crossed_1024(None, None), None);
    }

    #[test]
    fn r7_only_the_wall_of_select_has_a_condition() {
        assert!(condition("select-1024").is_some());
        for name in ["soft-limit", "hard-limit", "system-files", "ptys", "tasks"] {
            assert_eq!(condition(name), None, "{name}");
        }
    }

    #[test]
    fn a_share_of_nothing_is_unknown() {
        assert_eq!(percent(5, 0), None);
        assert_eq!(percent(998, 1024), Some(97.5));
    }
}
