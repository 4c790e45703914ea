//! The children of processes, and which of them are zombies.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd};

use fdguard_core::snapshot::{Cohort, Process};
use fdguard_core::{Pid, Text};

use super::Context;
use crate::linux::process::Basics;
use crate::linux::snapshot::ProcessDraft;
use crate::linux::{Probe, files};
use crate::workers;
use fdguard_proc::children;
use fdguard_proc::stat::ProcStat;

/// A child by its command, and whether it is a zombie.
pub(in crate::linux) type Child = (Text, bool);

/// The children of every process.
type Families = HashMap<Pid, Vec<Child>>;

/// Gives every process its children: for most of the host from what was already read, for a few
/// processes from their own lists.
pub(super) fn adopt(context: &Context<'_>, drafts: &mut [&mut ProcessDraft]) {
    let probe = context.probe;
    if drafts.len() < 2 || drafts.len() * 2 < context.all_pids().len() {
        return workers::for_each(drafts, 8, |draft| {
            let ticks = draft.basics.process.start_ticks;
            draft.basics.adopt(probe.children(draft.pid, ticks));
        });
    }
    let read = drafts
        .iter()
        .map(|draft| (draft.pid, &draft.basics.process))
        .collect();
    let mut families = probe.families(context.all_pids(), &read);
    for draft in drafts {
        let children = families.remove(&draft.pid).unwrap_or_default();
        draft.basics.adopt(Some(children));
    }
}

impl Basics {
    /// Adds the children, if they are known.
    pub(in crate::linux) fn adopt(&mut self, children: Option<Vec<Child>>) {
        let Some(children) = children else { return };
        let zombies = children.iter().filter(|(_, zombie)| *zombie).count();
        self.process.children = Some(children.len() as u64);
        self.process.zombies = Some(zombies as u64);
        self.process.cohorts = cohorts(children);
    }
}

impl Probe {
    /// The children of one process by its threads' own lists; absent on kernels without them.
    pub(in crate::linux) fn children(
        &self,
        pid: Pid,
        start_ticks: Option<u64>,
    ) -> Option<Vec<Child>> {
        let tasks = files::open_dir_at(&self.proc, format!("{pid}/task")).ok()?;
        let mut found = Vec::new();
        for task in files::numbers(tasks.as_fd()).ok()? {
            let list = match files::read(&tasks, format!("{task}/children")) {
                Ok(list) => list,
                // A thread that exited has left its children to another one.
                Err(error) if files::is_gone(error) && task_exists(tasks.as_fd(), task) => {
                    return None;
                }
                Err(_) => continue,
            };
            let pids = children::pids(&list).into_iter();
            found.extend(pids.filter_map(|child| self.name_and_state(child)));
        }
        // Children of another process are not an answer: the pid may have been reused since.
        let bytes = files::read(&self.proc, format!("{pid}/stat")).ok()?;
        let same = ProcStat::parse(&bytes)?.start_ticks;
        (Some(same) == start_ticks).then_some(found)
    }

    /// The command of a process, and whether it is a zombie; `None` if it is gone.
    pub(super) fn name_and_state(&self, pid: Pid) -> Option<Child> {
        let bytes = files::read(&self.proc, format!("{pid}/stat")).ok()?;
        let stat = ProcStat::parse(&bytes)?;
        Some((Text::from(stat.comm), stat.is_zombie()))
    }

    /// The children of each process: of those that were read, and by reading each of the others.
    fn families(&self, all: &[Pid], read: &HashMap<Pid, &Process>) -> Families {
        let mut families = Families::new();
        let mut buffer = Vec::new();
        for pid in all {
            if let Some(process) = read.get(pid) {
                let child = (process.comm.clone(), false);
                families
                    .entry(process.ppid.unwrap_or(0))
                    .or_default()
                    .push(child);
                continue;
            }
            let Ok(bytes) = files::read_into(&self.proc, format!("{pid}/stat"), &mut buffer) else {
                continue;
            };
            if let Some(stat) = ProcStat::parse(bytes) {
                let child = (Text::from(stat.comm), stat.is_zombie());
                families.entry(stat.ppid).or_default().push(child);
            }
        }
        families
    }
}

fn task_exists(tasks: BorrowedFd<'_>, task: u32) -> bool {
    rustix::fs::statat(
        tasks,
        rustix::path::DecInt::new(task),
        rustix::fs::AtFlags::empty(),
    )
    .is_ok()
}

fn cohorts(children: Vec<Child>) -> Vec<Cohort> {
    let mut groups: HashMap<Text, (u64, u64)> = HashMap::new();
    for (command, zombie) in children {
        let group = groups.entry(command).or_default();
        group.0 += 1;
        group.1 += u64::from(zombie);
    }
    let mut list: Vec<Cohort> = groups
        .into_iter()
        .map(|(command, (count, zombies))| Cohort {
            command,
            count,
            zombies,
        })
        .collect();
    list.sort_by(|a, b| {
        b.count
            .cmp(&a.count)
            .then_with(|| a.command.cmp(&b.command))
    });
    list
}
