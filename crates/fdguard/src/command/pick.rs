//! Resolves the user's selection to pids.

use std::collections::HashSet;

use fdguard_core::Pid;
use fdguard_core::workload::ProcessGroup;
use fdguard_probe::Probe;

use crate::cli::{GroupArgs, Selection};
use crate::exit::HintedError;
use crate::terminal::sanitize_str;

/// The processes of a selection, each once, in the given order.
pub(super) fn pick(probe: &Probe, selection: &Selection) -> anyhow::Result<Vec<Pid>> {
    let Selection::Some {
        pids,
        name,
        groups,
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
    picked.extend(in_groups(probe, groups)?);
    if *tree {
        let mut with_descendants = Vec::new();
        for pid in picked {
            with_descendants.extend(probe.tree(pid)?);
        }
        picked = with_descendants;
    }
    let mut seen = HashSet::new();
    picked.retain(|pid| seen.insert(*pid));
    Ok(picked)
}

/// The groups that were named; an error if one of them has no process.
pub(super) fn groups(probe: &Probe, args: &GroupArgs) -> anyhow::Result<Vec<ProcessGroup>> {
    let mut groups = Vec::new();
    if let Some(wanted) = &args.container {
        let hint = "names are known only to root; give the id: docker inspect -f '{{.Id}}' NAME";
        groups.extend(some(probe.containers(wanted)?, || {
            (format!("no process is in a container {wanted:?}"), hint)
        })?);
    }
    let named = args.unit.clone().map(ProcessGroup::Unit);
    let named = named
        .into_iter()
        .chain(args.pod.clone().map(ProcessGroup::Pod));
    for group in named {
        some(probe.in_group(&group)?, || nobody(&group))?;
        groups.push(group);
    }
    Ok(groups)
}

/// The error for a group without a process.
fn nobody(group: &ProcessGroup) -> (String, &'static str) {
    match group {
        ProcessGroup::Container(name) => (
            format!("no process is in a container {name:?}"),
            "run `fdguard top --once` to list the processes with their containers",
        ),
        ProcessGroup::Unit(unit) => (
            format!("no process belongs to the unit {unit:?}"),
            "run `systemctl status` to list the units with their processes",
        ),
        ProcessGroup::Pod(pod) => (
            format!(
                "no process belongs to the pod {}/{}",
                pod.namespace, pod.name
            ),
            "run `ls /var/log/pods` as root to list the pods of this machine",
        ),
    }
}

/// The processes of the groups, each once.
pub(super) fn in_groups(probe: &Probe, args: &GroupArgs) -> anyhow::Result<Vec<Pid>> {
    let mut picked = Vec::new();
    for group in groups(probe, args)? {
        picked.extend(some(probe.in_group(&group)?, || nobody(&group))?);
    }
    let mut seen = HashSet::new();
    picked.retain(|pid| seen.insert(*pid));
    Ok(picked)
}

/// The process of a command that examines one: given by number, or the only one of its groups.
/// `None` if nothing was named.
pub(super) fn pick_one(
    pid: Option<Pid>,
    args: &GroupArgs,
    command: &str,
) -> anyhow::Result<Option<Pid>> {
    choose_from(pid, args, command, |_, picked| Ok(picked))
}

/// The same for a command that chooses among the processes of the groups.
fn choose_from(
    pid: Option<Pid>,
    args: &GroupArgs,
    command: &str,
    choose: impl FnOnce(&Probe, Vec<Pid>) -> anyhow::Result<Vec<Pid>>,
) -> anyhow::Result<Option<Pid>> {
    if pid.is_some() || args.is_empty() {
        return Ok(pid);
    }
    let probe = Probe::new()?;
    let picked = choose(&probe, in_groups(&probe, args)?)?;
    only(&probe, &picked, command).map(Some)
}

/// The same for a command that also examines the descendants: the process above all others.
#[cfg(feature = "trace")]
pub(super) fn pick_root(
    pid: Option<Pid>,
    args: &GroupArgs,
    command: &str,
) -> anyhow::Result<Option<Pid>> {
    choose_from(pid, args, command, |probe, mut picked| {
        let mut below = HashSet::new();
        for pid in &picked {
            below.extend(probe.tree(*pid)?.into_iter().skip(1));
        }
        picked.retain(|pid| !below.contains(pid));
        Ok(picked)
    })
}

/// Candidates that an error lists.
const LISTED: usize = 10;

fn only(probe: &Probe, picked: &[Pid], command: &str) -> anyhow::Result<Pid> {
    if let [pid] = picked {
        return Ok(*pid);
    }
    let names = probe.process_names()?;
    let label = |pid: &Pid| {
        let name = names.iter().find(|(known, _)| known == pid);
        let name = name.map_or_else(String::new, |(_, name)| {
            format!(" ({})", sanitize_str(&name.to_lossy()))
        });
        format!("{pid}{name}")
    };
    let mut listed: Vec<String> = picked.iter().take(LISTED).map(label).collect();
    let others = picked.len().saturating_sub(LISTED);
    if others > 0 {
        listed.push(format!("and {others} more"));
    }
    let message = format!(
        "{command} examines one process, and {} match: {}",
        picked.len(),
        listed.join(", ")
    );
    Err(HintedError::usage(message, "give the number of one of them").into())
}

fn some<T>(
    found: Vec<T>,
    nobody: impl FnOnce() -> (String, &'static str),
) -> Result<Vec<T>, HintedError> {
    if found.is_empty() {
        let (message, hint) = nobody();
        return Err(HintedError::look(message, hint));
    }
    Ok(found)
}
