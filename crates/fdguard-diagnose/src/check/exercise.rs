//! Judges what the cycles of an exercise left, grouped by origin and class.

use std::collections::{BTreeSet, HashMap};

use fdguard_core::children::finding::ChildPile;
use fdguard_core::class_pattern::ClassPattern;
use fdguard_core::diagnosis::{Diagnosis, WatchEnd};
use fdguard_core::event::CollectedEvents;
use fdguard_core::finding::Finding;
use fdguard_core::judge::Verdict;
use fdguard_core::origin::{Culprit, Origin};
use fdguard_core::proof::cycles::{self, CycleOutcome};
use fdguard_core::proof::{Remains, RemainsVerdict};
use fdguard_core::snapshot::Process;
use fdguard_core::units::counted;
use fdguard_core::{Class, Fd, Gap, Pid, Text};
use fdguard_trace::{Site, TraceState};
use jiff::Timestamp;

use super::baseline;
use super::proof::{CheckEvidence, ExerciseResult, budget_finding};
use super::survey::{OpenDescriptor, Survey};
use crate::Error;

/// What is known of an exercised server, besides the descriptors that it holds.
#[derive(Debug)]
pub struct ExercisedServer<'a> {
    /// When it was started, or first looked at.
    pub began: Timestamp,
    /// Its descriptors before the first exercise.
    pub before: Option<u64>,
    /// Why the exercises ended.
    pub ended: WatchEnd,
    /// What its trace has found; `None` if it was already running and could not be attached to.
    pub state: Option<&'a TraceState>,
    /// Why it could not be attached to.
    pub unattached: Option<Gap>,
    /// The most descriptors that it may hold at the end.
    pub budgets: &'a [(ClassPattern, u64)],
    /// What the cycles left.
    pub remains: Vec<Remains>,
    /// The lines that leave a child in each cycle.
    pub piles: Vec<ChildPile>,
    /// How it was exercised.
    pub exercises: Vec<ExerciseResult>,
}

impl ExercisedServer<'_> {
    /// The evidence for a proof, without the processes that outlive the server.
    ///
    /// # Errors
    ///
    /// If the server is gone.
    pub fn evidence(self, survey: &Survey<'_>) -> Result<CheckEvidence, Error> {
        let process = survey.process()?;
        let sites = self.state.iter().flat_map(|state| &state.sites);
        let open: HashMap<Pid, BTreeSet<Fd>> = sites.map(|one| (one.pid, one.open())).collect();
        let is_attributed =
            |pid: Pid, fd: Fd| open.get(&pid).is_some_and(|open| open.contains(&fd));
        let attributed = survey
            .held()
            .filter(|(pid, fd, _)| is_attributed(*pid, *fd));
        let mut gaps = survey.gaps();
        gaps.extend(self.lines_gap(open.contains_key(&process.pid)));
        gaps.extend(match self.state {
            Some(state) => state.gaps.clone(),
            None => CollectedEvents::default().gaps(),
        });
        let backend = self.state.map_or("probe", |state| state.scope.backend);
        let times = (self.began, Timestamp::now());
        let mut diagnosis = Diagnosis {
            samples: survey.looks(),
            baseline: self.before,
            last: Some(survey.count()),
            verdict: verdict(&self.remains),
            findings: over_budget(self.budgets, survey, &process),
            hazards: self
                .state
                .map_or_else(Vec::new, |state| state.hazards.clone()),
            gaps,
            ..Diagnosis::new(process, times, self.ended, backend)
        };
        diagnosis.coverage.attributed_fds = attributed.count() as u64;
        diagnosis.coverage.live_fds = Some(survey.count());
        diagnosis.coverage.lost_events = self.state.map_or(0, |state| state.scope.lost_events);
        let classes = survey.held().map(|(_, _, seen)| (seen.class.clone(), 1));
        Ok(CheckEvidence {
            diagnosis,
            remains: self.remains,
            piles: self.piles,
            processes: Vec::new(),
            status: None,
            exercises: self.exercises,
            held: Some(baseline::count(classes)),
            blind: false,
        })
    }

    /// Why lines are unknown; `None` if they are known.
    fn lines_gap(&self, has_table: bool) -> Option<Gap> {
        let blind = self.state.and_then(|state| state.scope.blind);
        let (why, remedy) = match blind {
            Some(blind) => (blind.why(), blind.remedy()),
            None if self.state.is_none() => return self.unattached.clone(),
            None if has_table => return None,
            None => (
                "the program did not load the injected library",
                "run `fdguard trace -- SERVER` to see why",
            ),
        };
        Some(Gap::new("the lines that opened descriptors", why, remedy))
    }
}

/// Classes of which the server holds more than the scenario allows.
fn over_budget(
    budgets: &[(ClassPattern, u64)],
    survey: &Survey<'_>,
    process: &Process,
) -> Vec<Finding> {
    let over = budgets.iter().filter_map(|(class, most)| {
        let held = survey
            .held()
            .filter(|(_, _, seen)| class.matches(&seen.class));
        let count = held.count() as u64;
        (count > *most).then(|| {
            let held = counted(count, "descriptor");
            let why = format!("{held} of class {class} at the end; the scenario allows {most}");
            budget_finding(process, why, count)
        })
    });
    over.collect()
}

fn verdict(remains: &[Remains]) -> Verdict {
    let worst = remains.iter().map(|one| one.judged).min();
    match worst {
        Some(RemainsVerdict::PerCycle) => Verdict::Leaking,
        Some(RemainsVerdict::Held) => Verdict::Bounded,
        _ => Verdict::Stable,
    }
}

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
pub fn judge_cycles(
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
