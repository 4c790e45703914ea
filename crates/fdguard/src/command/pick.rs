//! Resolves the user's selection to pids.

use fdguard_core::Pid;
use fdguard_probe::Probe;

use crate::cli::{PodSelector, Selection};
use crate::exit::HintedError;

/// The processes of a selection, each once, in the given order.
pub(super) fn pick(probe: &Probe, selection: &Selection) -> anyhow::Result<Vec<Pid>> {
    let Selection::Some {
        pids,
        name,
        container,
        unit,
        pod,
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
    let groups = GroupSelection {
        container: container.as_deref(),
        unit: unit.as_deref(),
        pod: pod.as_ref(),
    };
    picked.extend(groups.pick(probe)?);
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

/// Groups of processes that have a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupSelection<'a> {
    pub(super) container: Option<&'a str>,
    pub(super) unit: Option<&'a str>,
    pub(super) pod: Option<&'a PodSelector>,
}

impl GroupSelection<'_> {
    /// The processes of these groups.
    pub(super) fn pick(self, probe: &Probe) -> anyhow::Result<Vec<Pid>> {
        let mut picked = Vec::new();
        if let Some(wanted) = self.container {
            let hint =
                "names are known only to root; give the id: docker inspect -f '{{.Id}}' NAME";
            picked.extend(some(probe.in_container(wanted)?, || {
                (format!("no process is in a container {wanted:?}"), hint)
            })?);
        }
        if let Some(unit) = self.unit {
            let hint = "run `systemctl status` to list the units with their processes";
            picked.extend(some(probe.of_unit(unit)?, || {
                (format!("no process belongs to the unit {unit:?}"), hint)
            })?);
        }
        if let Some(PodSelector { namespace, name }) = self.pod {
            let hint = "run `ls /var/log/pods` as root to list the pods of this machine";
            picked.extend(some(probe.in_pod(namespace, name)?, || {
                (
                    format!("no process belongs to the pod {namespace}/{name}"),
                    hint,
                )
            })?);
        }
        Ok(picked)
    }
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
