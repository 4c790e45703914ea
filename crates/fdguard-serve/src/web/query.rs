//! What a request asks for: order, search, limits. Pure.

use std::time::Duration;

use fdguard_core::units::parse_duration;
use fdguard_http::Problem;
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;

use crate::finding_book::{FindingRecord, FindingState};
use crate::overview::{Overview, ServiceView};
use crate::service::ServiceKind;

/// The query of the overview.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OverviewQuery {
    /// `time-left`, `growth`, `usage`, `verdict`, `count` or `name`.
    sort: Option<String>,
    /// A part of a service's name or kind.
    q: Option<String>,
    /// The most services.
    limit: Option<usize>,
}

/// The query of findings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FindingQuery {
    /// `open`, `resolved`, `suppressed` or `all`.
    state: Option<String>,
    /// Also those that the loop has forgotten, from the history.
    #[serde(default)]
    pub(super) older: bool,
}

/// The query of one service.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceQuery {
    pub(super) kind: Option<String>,
    pub(super) name: String,
    /// How much history: `2h`.
    since: Option<String>,
    /// The same in seconds.
    since_seconds: Option<u32>,
}

/// The history that is shown if nothing is asked.
const USUAL_HISTORY: Duration = Duration::from_secs(86_400);

impl ServiceQuery {
    /// How far its history goes back.
    pub(super) fn history(&self) -> Result<Duration, Problem> {
        let wrong = |detail| Problem::new(StatusCode::BAD_REQUEST, "bad-query", detail);
        match (&self.since, self.since_seconds) {
            (Some(_), Some(_)) => Err(wrong("give since or since_seconds, not both".to_owned())),
            (Some(text), None) => {
                parse_duration(text).map_err(|error| wrong(format!("since: {error}")))
            }
            (None, Some(seconds)) => Ok(Duration::from_secs(seconds.into())),
            (None, None) => Ok(USUAL_HISTORY),
        }
    }
}

/// The query of one kept moment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MomentQuery {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) at: Timestamp,
}

/// A kind of service, by its word.
pub(super) fn service_kind(word: &str) -> Result<ServiceKind, Problem> {
    ServiceKind::from_word(word).ok_or_else(|| {
        let detail = format!("kind {word:?} is not one of pod, container, unit, program, command");
        Problem::new(StatusCode::BAD_REQUEST, "bad-query", detail)
    })
}

impl OverviewQuery {
    /// The overview in this order, with these services.
    pub(super) fn apply(&self, overview: &Overview) -> Result<Overview, Problem> {
        let wanted = self.q.as_deref().unwrap_or_default().to_lowercase();
        let is_wanted = |view: &&ServiceView| {
            wanted.is_empty()
                || view.key.name.to_lowercase().contains(&wanted)
                || view.key.kind.word() == wanted
        };
        let services = overview.services.iter().filter(is_wanted);
        let mut services: Vec<ServiceView> = services.cloned().collect();
        sort(&mut services, self.sort.as_deref().unwrap_or("time-left"))?;
        services.truncate(self.limit.unwrap_or(usize::MAX));
        Ok(Overview {
            services,
            ..overview.clone()
        })
    }
}

fn sort(services: &mut [ServiceView], by: &str) -> Result<(), Problem> {
    let largest = |key: fn(&ServiceView) -> f64| {
        move |a: &ServiceView, b: &ServiceView| key(b).total_cmp(&key(a))
    };
    match by {
        // The least time first; then those with findings, then the fullest.
        "time-left" => services.sort_by(|a, b| {
            let left = |view: &ServiceView| view.time_left().unwrap_or(f64::INFINITY);
            let ratio = |view: &ServiceView| view.usage_ratio.unwrap_or(0.0);
            left(a)
                .total_cmp(&left(b))
                .then_with(|| b.findings.len().cmp(&a.findings.len()))
                .then_with(|| ratio(b).total_cmp(&ratio(a)))
        }),
        "growth" => services.sort_by(largest(|view| view.growth_per_second.unwrap_or(0.0))),
        "usage" => services.sort_by(largest(|view| view.usage_ratio.unwrap_or(0.0))),
        "count" => services.sort_by(largest(|view| view.open_fds.unwrap_or(0) as f64)),
        "verdict" => services.sort_by_key(|view| std::cmp::Reverse(view.verdict)),
        "name" => services.sort_by(|a, b| a.key.name.cmp(&b.key.name)),
        other => {
            let detail = format!(
                "sort {other:?} is not one of time-left, growth, usage, verdict, count, name"
            );
            return Err(Problem::new(StatusCode::BAD_REQUEST, "bad-query", detail));
        }
    }
    Ok(())
}

impl FindingQuery {
    /// The findings in this state, the latest first.
    pub(super) fn apply(&self, records: Vec<FindingRecord>) -> Result<Vec<FindingRecord>, Problem> {
        let state = match self.state.as_deref().unwrap_or("all") {
            "all" => None,
            "open" => Some(FindingState::Open),
            "resolved" => Some(FindingState::Resolved),
            "suppressed" => Some(FindingState::Suppressed),
            other => {
                let detail =
                    format!("state {other:?} is not one of open, resolved, suppressed, all");
                return Err(Problem::new(StatusCode::BAD_REQUEST, "bad-query", detail));
            }
        };
        let wanted = records.into_iter().rev();
        let wanted = wanted.filter(|record| state.is_none_or(|state| record.state == state));
        Ok(wanted.collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fdguard_core::judge::Verdict;
    use jiff::Timestamp;

    use super::{OverviewQuery, ServiceQuery};
    use crate::overview::{LimitTime, Overview};
    use crate::testing::service;

    fn names(sort: Option<&str>, q: Option<&str>, limit: Option<usize>) -> Vec<String> {
        let mut overview = Overview::empty("h".to_owned(), 5.0, Timestamp::UNIX_EPOCH);
        let mut dying = service("dying", 100);
        dying.seconds_to_limit = vec![LimitTime {
            limit: "soft-limit".to_owned(),
            seconds: 60.0,
        }];
        let mut found = service("found", 1);
        found.findings = vec![1];
        found.growth_per_second = Some(0.5);
        dying.growth_per_second = Some(2.0);
        found.verdict = Verdict::Leaking;
        dying.verdict = Verdict::Growing;
        overview.services = vec![service("full", 990), service("calm", 5), found, dying];
        let query = OverviewQuery {
            sort: sort.map(str::to_owned),
            q: q.map(str::to_owned),
            limit,
        };
        let shown = query.apply(&overview).unwrap();
        shown
            .services
            .into_iter()
            .map(|view| view.key.name)
            .collect()
    }

    #[test]
    fn a_history_is_asked_for_with_a_unit_or_in_seconds() {
        let history = |since: Option<&str>, since_seconds| {
            let query = ServiceQuery {
                kind: None,
                name: "web".to_owned(),
                since: since.map(str::to_owned),
                since_seconds,
            };
            query.history()
        };
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert_eq!(history(None, None).unwrap(), hours(24));
        assert_eq!(history(Some("2h"), None).unwrap(), hours(2));
        assert_eq!(history(None, Some(7200)).unwrap(), hours(2));
        for (since, seconds) in [(Some("soon"), None), (Some("2h"), Some(7200))] {
            assert_eq!(history(since, seconds).unwrap_err().code(), "bad-query");
        }
    }

    #[test]
    fn the_first_to_die_comes_first() {
        assert_eq!(names(None, None, None), ["dying", "found", "full", "calm"]);
        assert_eq!(names(Some("usage"), None, Some(2)), ["full", "dying"]);
        assert_eq!(names(Some("name"), Some("F"), None), ["found", "full"]);
        for (order, first) in [
            ("time-left", ["dying", "found"]),
            ("growth", ["dying", "found"]),
            ("verdict", ["found", "dying"]),
            ("count", ["full", "dying"]),
        ] {
            assert_eq!(names(Some(order), None, Some(2)), first, "{order}");
        }
        let query = OverviewQuery {
            sort: Some("luck".to_owned()),
            ..OverviewQuery::default()
        };
        let overview = Overview::empty("h".to_owned(), 5.0, Timestamp::UNIX_EPOCH);
        assert_eq!(query.apply(&overview).unwrap_err().code(), "bad-query");
    }
}
