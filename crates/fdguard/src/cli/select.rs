//! Process selection, shared by all commands.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use fdguard_core::Pid;
use fdguard_core::workload::PodSelector;

use crate::completion::{process_names, process_numbers};

/// Which processes to look at.
#[derive(Clone, Debug, Default, Args)]
pub struct SelectArgs {
    /// Process ids.
    #[arg(value_name = "PID", value_parser = parse_pid, allow_negative_numbers = true, add = number_completer())]
    pub pids: Vec<Pid>,
    /// Process ids, separated by commas; may be repeated.
    #[arg(help_heading = "Process selection", short, long = "pid", value_name = "PID", value_parser = parse_pid, value_delimiter = ',', allow_negative_numbers = true, add = number_completer())]
    pub pid: Vec<Pid>,
    /// Select every process whose command is NAME.
    #[arg(help_heading = "Process selection", long, value_name = "NAME", add = ArgValueCompleter::new(process_names))]
    pub name: Option<String>,
    /// Include all descendants of each process.
    #[arg(help_heading = "Process selection", long)]
    pub tree: bool,
    /// Groups of processes.
    #[command(flatten)]
    pub groups: GroupArgs,
    /// Select every process on the machine.
    #[arg(help_heading = "Process selection", long, conflicts_with_all = ["pids", "pid", "name", "tree", "container", "unit", "pod"])]
    pub all: bool,
}

/// Groups of processes, by the names that people use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct GroupArgs {
    /// Select every process in a container: its name, its id or the beginning of its id.
    #[arg(help_heading = "Process selection", long, value_name = "NAME|ID")]
    pub container: Option<String>,
    /// Select every process of a systemd unit.
    #[arg(help_heading = "Process selection", long, value_name = "NAME")]
    pub unit: Option<String>,
    /// Select every process of a Kubernetes pod.
    #[arg(help_heading = "Process selection", long, value_name = "NS/NAME", value_parser = parse_pod)]
    pub pod: Option<PodSelector>,
}

impl GroupArgs {
    /// Whether none was named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The requested processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Everything.
    All,
    /// These, with or without descendants.
    Some {
        /// By number.
        pids: Vec<Pid>,
        /// By command.
        name: Option<String>,
        /// By container, unit or pod.
        groups: GroupArgs,
        /// With descendants.
        tree: bool,
    },
}

impl SelectArgs {
    /// The requested selection; `None` if there was none.
    #[must_use]
    pub fn selection(&self) -> Option<Selection> {
        if self.all {
            return Some(Selection::All);
        }
        let pids: Vec<Pid> = self.pids.iter().chain(&self.pid).copied().collect();
        if pids.is_empty() && self.name.is_none() && self.groups.is_empty() {
            return None;
        }
        Some(Selection::Some {
            pids,
            name: self.name.clone(),
            groups: self.groups.clone(),
            tree: self.tree,
        })
    }
}

/// Offers the running processes for a process id.
pub(super) fn number_completer() -> ArgValueCompleter {
    ArgValueCompleter::new(process_numbers)
}

/// Parses `NAMESPACE/NAME`.
fn parse_pod(text: &str) -> Result<PodSelector, String> {
    match text.split_once('/') {
        Some((namespace, name))
            if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
        {
            Ok(PodSelector {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
        }
        _ => Err("a pod is given as NAMESPACE/NAME".to_owned()),
    }
}

/// Parses a pid: 1 to 4194304, the highest on Linux.
pub(super) fn parse_pid(text: &str) -> Result<Pid, String> {
    const HIGHEST: Pid = 1 << 22;
    match text.parse::<Pid>() {
        Ok(pid) if (1..=HIGHEST).contains(&pid) => Ok(pid),
        Err(_) if text.chars().any(char::is_alphabetic) => Err(format!(
            "not a process id; to trace a program, run: fdguard trace -- {text}"
        )),
        _ => Err(format!("a process id must be 1 to {HIGHEST}")),
    }
}
