//! Every process of the host: bounded, sorted, searched.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use fdguard_http::Problem;
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::api::Api;
use super::viewed::Viewed;
use crate::overview::ProcessView;

/// The most processes of one answer.
const MOST: usize = 10_000;
/// As many as are returned if nothing is asked.
const USUAL: usize = 2_000;

/// The query of processes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessQuery {
    /// `time-left`, `growth`, `usage`, `verdict`, `count` or `name`.
    sort: Option<String>,
    /// A part of the command or of the service's name, or the pid.
    q: Option<String>,
    /// The most processes.
    limit: Option<usize>,
}

#[derive(Serialize)]
struct ProcessDocument<'a> {
    schema: &'static str,
    taken_at: Timestamp,
    /// How many match, of which some may be left out.
    matched: usize,
    processes: Vec<&'a ProcessView>,
}

pub(super) async fn processes(
    State(api): Api,
    Viewed(query): Viewed<ProcessQuery>,
) -> Result<Response, Problem> {
    let all: Arc<[ProcessView]> = api.published.processes();
    let (matched, processes) = query.apply(&all)?;
    Ok(Json(ProcessDocument {
        schema: "fdguard.serve.processes/1",
        taken_at: api.published.overview().taken_at,
        matched,
        processes,
    })
    .into_response())
}

impl ProcessQuery {
    /// How many match, and the first of them.
    fn apply<'a>(&self, all: &'a [ProcessView]) -> Result<(usize, Vec<&'a ProcessView>), Problem> {
        let wanted = self.q.as_deref().unwrap_or_default().to_lowercase();
        let is_wanted = |view: &&ProcessView| {
            let is_in = |text: &str| text.to_lowercase().contains(&wanted);
            wanted.is_empty()
                || is_in(&view.comm.to_lossy())
                || is_in(&view.service.name)
                || view.pid.to_string() == wanted
        };
        let mut processes: Vec<&ProcessView> = all.iter().filter(is_wanted).collect();
        sort(&mut processes, self.sort.as_deref().unwrap_or("time-left"))?;
        let matched = processes.len();
        processes.truncate(self.limit.unwrap_or(USUAL).min(MOST));
        Ok((matched, processes))
    }
}

/// Equal ones stay in the order of their pids.
fn sort(processes: &mut [&ProcessView], by: &str) -> Result<(), Problem> {
    match by {
        "time-left" => processes.sort_by(|a, b| {
            let left = |view: &ProcessView| view.time_left().unwrap_or(f64::INFINITY);
            let used = |view: &ProcessView| view.usage_ratio().unwrap_or(0.0);
            left(a)
                .total_cmp(&left(b))
                .then_with(|| used(b).total_cmp(&used(a)))
        }),
        "growth" => processes.sort_by(|a, b| {
            let rate = |view: &ProcessView| view.growth_per_second.unwrap_or(0.0);
            rate(b).total_cmp(&rate(a))
        }),
        "usage" => processes.sort_by(|a, b| {
            let used = |view: &ProcessView| view.usage_ratio().unwrap_or(0.0);
            used(b).total_cmp(&used(a))
        }),
        "verdict" => processes.sort_by_key(|view| Reverse(view.verdict)),
        "count" => processes.sort_by_key(|view| Reverse(view.count)),
        "name" => processes.sort_by_key(|view| view.comm.to_lossy().into_owned()),
        other => {
            let detail = format!(
                "sort {other:?} is not one of time-left, growth, usage, verdict, count, name"
            );
            return Err(Problem::new(StatusCode::BAD_REQUEST, "bad-query", detail));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fdguard_core::judge::Verdict;
    use fdguard_core::snapshot::Limits;

    use super::ProcessQuery;
    use crate::overview::{LimitTime, ProcessView};
    use crate::service::{ServiceKey, ServiceKind};

    fn process(pid: u32, comm: &str, count: u64) -> ProcessView {
        ProcessView {
            pid,
            comm: comm.into(),
            service: ServiceKey::new(ServiceKind::Unit, "web.service"),
            uid: Some(0),
            count: Some(count),
            growth_per_second: None,
            limits: Limits {
                soft: Some(1000),
                hard: None,
            },
            verdict: Verdict::Unknown,
            seconds_to_limit: Vec::new(),
            is_watched: false,
        }
    }

    fn pids(sort: Option<&str>, q: Option<&str>, limit: Option<usize>) -> (usize, Vec<u32>) {
        let mut dying = process(4, "dying", 100);
        dying.seconds_to_limit = vec![LimitTime {
            limit: "soft-limit".to_owned(),
            seconds: 60.0,
        }];
        let [mut slow, mut fast] = [process(2, "nginx", 5), process(3, "Full", 990)];
        slow.growth_per_second = Some(0.1);
        fast.growth_per_second = Some(0.2);
        // What is unknown is not growth, and a process that shrinks comes after it.
        let mut shrinking = process(5, "shrinking", 1);
        shrinking.growth_per_second = Some(-1.0);
        let all = [slow, fast, dying, shrinking];
        let query = ProcessQuery {
            sort: sort.map(str::to_owned),
            q: q.map(str::to_owned),
            limit,
        };
        let (matched, shown) = query.apply(&all).unwrap();
        (matched, shown.iter().map(|view| view.pid).collect())
    }

    #[test]
    fn all_processes_are_sorted_searched_and_bounded() {
        assert_eq!(pids(None, None, None), (4, vec![4, 3, 2, 5]));
        assert_eq!(pids(Some("growth"), None, None), (4, vec![3, 2, 4, 5]));
        assert_eq!(pids(Some("count"), None, Some(1)), (4, vec![3]));
        assert_eq!(pids(Some("usage"), None, None), (4, vec![3, 4, 2, 5]));
        assert_eq!(pids(Some("name"), None, None), (4, vec![3, 4, 2, 5]));
        assert_eq!(pids(None, Some("full"), None), (1, vec![3]));
        assert_eq!(pids(None, Some("2"), None), (1, vec![2]));
        assert_eq!(pids(None, Some("web"), None).0, 4);
        let query = ProcessQuery {
            sort: Some("luck".to_owned()),
            ..ProcessQuery::default()
        };
        assert_eq!(query.apply(&[]).unwrap_err().code(), "bad-query");
    }
}
