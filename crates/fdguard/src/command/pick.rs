//! Resolves the user's selection to pids.

use fdguard_core::Pid;
use fdguard_probe::Probe;

use crate::cli::Selection;
use crate::exit::HintedError;

/// The processes of a selection, each once, in the given order.
pub(super) fn pick(probe: &Probe, selection: &Selection) -> anyhow::Result<Vec<Pid>> {
    let Selection::Some { pids, name, tree } = selection else {
        return Ok(probe.pids()?);
    };
    let mut picked = pids.clone();
    if let Some(name) = name {
        let found = probe.named(name)?;
        if found.is_empty() {
            let hint = "run `fdguard top --once` to list the running commands";
            return Err(HintedError::look(format!("no process is named {name:?}"), hint).into());
        }
        picked.extend(found);
    }
    if *tree {
        let mut with_descendants = Vec::new();
        for pid in picked {
            with_descendants.extend(probe.tree(pid)?);
        }
        picked = with_descendants;
    }
    let mut seen = std::collections::HashSet::new();
    picked.retain(|pid| seen.insert(*pid));
    Ok(picked)
}
