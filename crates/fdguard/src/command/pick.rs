//! Resolves the user's selection to pids.

use fdguard_core::Pid;
use fdguard_probe::Probe;

use crate::cli::Selection;
use crate::exit::HintedError;

/// The processes of a selection, each once, in the given order.
pub(super) fn pick(probe: &Probe, selection: &Selection) -> anyhow::Result<Vec<Pid>> {
    let Selection::Some {
        pids,
        name,
        container,
        unit,
        tree,
    } = selection
    else {
        return Ok(probe.pids()?);
    };
    let mut picked = pids.clone();
    if let Some(name) = name {
        let hint = "run `fdguard top --once` to list the running commands";
        picked.extend(some(probe.named(name)?, || {
            (format!("no process is named {name:?}"), hint)
        })?);
    }
    picked.extend(group(probe, container.as_deref(), unit.as_deref())?);
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

/// The processes of a container and of a unit.
pub(super) fn group(
    probe: &Probe,
    container: Option<&str>,
    unit: Option<&str>,
) -> anyhow::Result<Vec<Pid>> {
    let mut picked = Vec::new();
    if let Some(id) = container {
        let hint = "give the id, not the name: docker inspect -f '{{.Id}}' NAME";
        picked.extend(some(probe.in_container(id)?, || {
            (format!("no process is in a container {id:?}"), hint)
        })?);
    }
    if let Some(unit) = unit {
        let hint = "run `systemctl status` to list the units with their processes";
        picked.extend(some(probe.of_unit(unit)?, || {
            (format!("no process belongs to the unit {unit:?}"), hint)
        })?);
    }
    Ok(picked)
}

fn some(
    found: Vec<Pid>,
    nobody: impl FnOnce() -> (String, &'static str),
) -> Result<Vec<Pid>, HintedError> {
    if found.is_empty() {
        let (message, hint) = nobody();
        return Err(HintedError::look(message, hint));
    }
    Ok(found)
}
