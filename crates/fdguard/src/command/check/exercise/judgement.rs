//! What the cycles left, grouped by origin and class.

use std::collections::HashMap;

use fdguard_core::origin::{Culprit, Origin};
use fdguard_core::proof::cycles::{self, CycleOutcome};
use fdguard_core::proof::{Remains, RemainsVerdict};
use fdguard_core::{Class, Fd, Pid, Text};
use fdguard_trace::{Site, TraceState};

use super::survey::{OpenDescriptor, Survey};

/// Survivors of one origin and one family of classes.
#[derive(Debug)]
struct Group {
    culprit: Option<Culprit>,
    family: Class,
    /// The target, if the origin is unknown.
    target: Option<Text>,
    origin: Option<Origin>,
    members: Vec<(Pid, Fd, OpenDescriptor)>,
    call: String,
}

/// Judges every group; the second value is true if more cycles could decide more. `begins` holds
/// the times at which the cycles began, by the tracer's clock.
pub(super) fn judge(
    survey: &Survey<'_>,
    state: Option<&TraceState>,
    begins: &[u64],
) -> (Vec<Remains>, bool) {
    let comm = survey
        .process()
        .map(|process| process.comm)
        .unwrap_or_default();
    let groups = groups(survey, state, begins);
    let mut is_undecided = false;
    let mut remains = Vec::new();
    for group in groups {
        let mut series = vec![0_u64; begins.len()];
        for (_, _, seen) in &group.members {
            let at = usize::try_from(seen.cycle).unwrap_or(0).checked_sub(1);
            if let Some(count) = at.and_then(|at| series.get_mut(at)) {
                *count += 1;
            }
        }
        let (judged, rate, why) = match cycles::judge(&series) {
            CycleOutcome::Clean => (
                RemainsVerdict::InFlight,
                None,
                "left by the last cycles only",
            ),
            CycleOutcome::Leaks(rate) => {
                (RemainsVerdict::PerCycle, Some(rate), "left by every cycle")
            }
            CycleOutcome::Bounded(rate) => (
                RemainsVerdict::Held,
                Some(rate),
                "left by the first cycles only",
            ),
            CycleOutcome::Undecided(rate) => {
                is_undecided = true;
                (
                    RemainsVerdict::Held,
                    Some(rate),
                    "left by some cycles: not proven to be a leak",
                )
            }
        };
        remains.push(group.remains(&comm, judged, rate, why));
    }
    remains.sort_by_key(|one| (one.judged, std::cmp::Reverse(one.count)));
    (remains, is_undecided)
}

impl Group {
    fn remains(
        self,
        comm: &Text,
        judged: RemainsVerdict,
        rate: Option<cycles::Rate>,
        why: &str,
    ) -> Remains {
        let class = most_common(self.members.iter().map(|(_, _, seen)| seen.class.clone()));
        let alike = |of: fn(&OpenDescriptor) -> &Text| {
            let mut targets = self.members.iter().map(|(_, _, seen)| of(seen));
            let first = targets.next()?;
            targets.all(|one| one == first).then(|| first.clone())
        };
        let target = alike(|seen| &seen.target).or_else(|| alike(|seen| &seen.group));
        let evidence = rate
            .as_ref()
            .map(|rate| format!(": {}", cycles::evidence(rate)));
        Remains {
            pid: self.members.first().map_or(0, |(pid, _, _)| *pid),
            comm: comm.clone(),
            class: class.or(Some(self.family)),
            target,
            call: self.call,
            count: self.members.len() as u64,
            fds: self.members.iter().map(|(_, fd, _)| *fd).collect(),
            judged,
            why: format!("{why}{}", evidence.unwrap_or_default()),
            origin: self.origin,
            exercise: None,
            per_cycle: rate,
            allowed_by: None,
        }
    }
}

/// Everything that was opened in a cycle and is still open.
fn groups(survey: &Survey<'_>, state: Option<&TraceState>, begins: &[u64]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut by_pid: HashMap<Pid, HashMap<Fd, &OpenDescriptor>> = HashMap::new();
    for (pid, fd, seen) in survey.held() {
        by_pid.entry(pid).or_default().insert(fd, seen);
    }
    let mut pids: Vec<Pid> = by_pid.keys().copied().collect();
    pids.sort_unstable();
    for pid in pids {
        let mut held = by_pid.remove(&pid).unwrap_or_default();
        let traced = state.and_then(|state| Some((state, state.sites_of(pid)?)));
        if let Some((state, open)) = traced {
            for site in open.only(|one| held.contains_key(&one.fd)) {
                take_site(&mut groups, pid, &site, &mut held, begins, state.now.0);
            }
        }
        // A child does not open what it inherits from its parent, such as its standard input; the
        // child itself is reported if it stays.
        let is_inborn = |fd: Fd, seen: &OpenDescriptor| match traced {
            Some((_, open)) => seen.inborn && (fd <= 2 || open.inherited.contains(&fd)),
            None => seen.inborn,
        };
        let mut rest: Vec<(Fd, &OpenDescriptor)> = held
            .into_iter()
            .filter(|(fd, seen)| seen.cycle > 0 && !is_inborn(*fd, seen))
            .collect();
        rest.sort_by_key(|(fd, _)| *fd);
        for (fd, seen) in rest {
            let target = Some(seen.group.clone());
            let group = find(&mut groups, None, &seen.class.family(), target.as_ref());
            group.members.push((pid, fd, seen.clone()));
        }
    }
    groups
}

/// What one site opened: the tracer knows the time of each open to the nanosecond.
fn take_site(
    groups: &mut Vec<Group>,
    pid: Pid,
    site: &Site,
    held: &mut HashMap<Fd, &OpenDescriptor>,
    begins: &[u64],
    now: u64,
) {
    for open in &site.open {
        let Some(seen) = held.remove(&open.fd) else {
            continue;
        };
        // The process that opened it is responsible.
        if open.descriptor.forks > 0 && seen.inborn {
            continue;
        }
        let born = open.descriptor.ns;
        let cycle = begins.iter().take_while(|begin| **begin <= born).count();
        if cycle == 0 {
            continue;
        }
        let group = find(groups, site.culprit.as_ref(), &seen.class.family(), None);
        group.call = open.descriptor.call.name().to_owned();
        group.origin.get_or_insert_with(|| site.origin(now));
        let cycle = u32::try_from(cycle).unwrap_or(u32::MAX);
        group.members.push((
            pid,
            open.fd,
            OpenDescriptor {
                cycle,
                ..seen.clone()
            },
        ));
    }
}

fn find<'g>(
    groups: &'g mut Vec<Group>,
    culprit: Option<&Culprit>,
    family: &Class,
    target: Option<&Text>,
) -> &'g mut Group {
    let is_same = |one: &Group| {
        one.culprit.as_ref() == culprit && one.family == *family && one.target.as_ref() == target
    };
    let at = groups.iter().position(is_same).unwrap_or_else(|| {
        groups.push(Group {
            culprit: culprit.cloned(),
            family: family.clone(),
            target: target.cloned(),
            origin: None,
            members: Vec::new(),
            call: "an unknown call".to_owned(),
        });
        groups.len() - 1
    });
    &mut groups[at]
}

fn most_common(classes: impl Iterator<Item = Class>) -> Option<Class> {
    let mut counts: HashMap<Class, usize> = HashMap::new();
    for class in classes {
        *counts.entry(class).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .max_by_key(|(class, count)| (*count, std::cmp::Reverse(class.clone())));
    most.map(|(class, _)| class)
}
