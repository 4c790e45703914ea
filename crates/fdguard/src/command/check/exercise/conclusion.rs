//! The diagnosis of an exercise.

use std::collections::{BTreeSet, HashMap};

use fdguard_core::diagnosis::{Coverage, DIAGNOSIS_SCHEMA, Diagnosis, WatchEnd};
use fdguard_core::event::CollectedEvents;
use fdguard_core::finding::Finding;
use fdguard_core::judge::Verdict;
use fdguard_core::proof::{Remains, RemainsVerdict};
use fdguard_core::{Fd, Gap, Pid};
use jiff::Timestamp;

use super::super::proof::budget_finding;
use super::Bench;
use super::plan::Plan;
use super::server::Server;
use super::survey::Survey;

/// Classes of which the server holds more than the scenario allows.
pub(super) fn over_budget(plan: &Plan, survey: &Survey<'_>, diagnosis: &Diagnosis) -> Vec<Finding> {
    let over = plan.budgets.iter().filter_map(|(class, most)| {
        let held = survey
            .held()
            .filter(|(_, _, seen)| class.matches(&seen.class));
        let count = held.count() as u64;
        (count > *most).then(|| {
            let why = format!(
                "{count} descriptors of class {class} at the end; the scenario allows {most}"
            );
            budget_finding(&diagnosis.process, why, count)
        })
    });
    over.collect()
}

pub(super) fn verdict(remains: &[Remains]) -> Verdict {
    let worst = remains.iter().map(|one| one.judged).min();
    match worst {
        Some(RemainsVerdict::PerCycle) => Verdict::Leaking,
        Some(RemainsVerdict::Held) => Verdict::Bounded,
        _ => Verdict::Stable,
    }
}

/// Why lines are unknown; `None` if they are known.
fn lines_gap(server: &Server, has_table: bool) -> Option<Gap> {
    let blind = match server {
        Server::Launched(one) => one.traced.session.source().blind(),
        Server::Attached(_) => None,
    };
    let what = "the lines that opened descriptors";
    if let Some(blind) = blind {
        return Some(Gap::new(what, blind.why(), blind.remedy()));
    }
    let (why, remedy) = match server {
        Server::Attached(_) => (
            "the server was already running",
            "let fdguard start the server: fdguard check --exercise CMD -- SERVER",
        ),
        Server::Launched(_) if has_table => return None,
        Server::Launched(_) => (
            "the program did not load the injected library",
            "run `fdguard trace -- SERVER` to see why",
        ),
    };
    Some(Gap::new(what, why, remedy))
}

pub(super) fn diagnosis(
    bench: &Bench<'_>,
    survey: &Survey<'_>,
    server: &mut Server,
    began: Timestamp,
) -> anyhow::Result<Diagnosis> {
    let state = server.state()?;
    let open: HashMap<Pid, BTreeSet<Fd>> = state
        .iter()
        .flat_map(|state| &state.sites)
        .map(|one| (one.pid, one.open()))
        .collect();
    let is_attributed = |(pid, fd, _): &(Pid, Fd, _)| {
        let open = open.get(pid);
        open.is_some_and(|open| open.contains(fd))
    };
    let attributed = survey.held().filter(is_attributed).count() as u64;
    let mut gaps = survey.gaps();
    gaps.extend(lines_gap(server, open.contains_key(&server.pid())));
    let scope = state.as_ref().map(|state| state.scope.clone());
    let (hazards, unheard) = match state {
        Some(state) => (state.hazards, state.gaps),
        None => (Vec::new(), CollectedEvents::default().gaps()),
    };
    gaps.extend(unheard);
    Ok(Diagnosis {
        schema: DIAGNOSIS_SCHEMA.to_owned(),
        started_at: began,
        ended_at: Timestamp::now(),
        process: survey.process()?,
        samples: survey.looks(),
        baseline: None,
        last: Some(survey.count()),
        verdict: Verdict::Unknown,
        ended: if bench.stop.check().is_err() {
            WatchEnd::Interrupted
        } else {
            WatchEnd::TimeUp
        },
        findings: Vec::new(),
        hazards,
        peak: None,
        peak_at: None,
        released_at_end: None,
        sites: None,
        processes: Vec::new(),
        predecessors: Vec::new(),
        coverage: Coverage {
            backend: scope
                .as_ref()
                .map_or("probe", |scope| scope.backend)
                .to_owned(),
            attributed_fds: attributed,
            live_fds: Some(survey.count()),
            lost_events: scope.map_or(0, |scope| scope.lost_events),
        },
        gaps,
    })
}
