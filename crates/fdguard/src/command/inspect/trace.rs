//! Finds the code that wrote to the database, if a holder is traced by fdguard: the hazards proven
//! by its last events.

use fdguard_core::hazard::Hazard;
use fdguard_files::holding::Holding;
use fdguard_trace::{ObservedTrace, StateParts};

/// The rules that explain how foreign data gets into a file.
const RULES: [&str; 4] = [
    "recycled-write",
    "stranger-close",
    "use-after-close",
    "lock-drop",
];

/// The hazards in processes that hold the file, misdirected writes first.
pub(super) fn hazards(holding: &Holding) -> Vec<Hazard> {
    let mut found: Vec<Hazard> = Vec::new();
    for process in &holding.processes {
        // Most processes are not traced, and some cannot be queried.
        let Ok(observed) = ObservedTrace::find(process.pid) else {
            continue;
        };
        let state = observed.session().state(StateParts {
            is_end: true,
            ..StateParts::HAZARDS
        });
        let told = state
            .hazards
            .into_iter()
            .filter(|one| one.pid == process.pid && RULES.contains(&one.rule.as_str()));
        found.extend(told);
    }
    found.sort_by_key(|one| RULES.iter().position(|rule| *rule == one.rule));
    found
}
