//! The fleet: all hosts with a serving fdguard, as a server with the Prometheus HTTP API knows them
//! (Prometheus, VictoriaMetrics, Mimir, Thanos). Nothing is stored here; every answer is a few
//! queries.

mod check;
mod prometheus;
mod query;
mod ranking;
mod rows;
mod verdicts;

use std::collections::BTreeSet;
use std::time::Duration;

use fdguard_core::Gap;
use fdguard_core::units::counted;
use serde::Serialize;

pub use check::{FleetCheck, FleetCheckOptions, FleetProblem};
pub use query::FleetOrder;
pub use rows::{FleetFindingCount, FleetRow};
pub use verdicts::{FleetConclusion, FleetSpread};

use crate::extra_headers::ExtraHeaders;
use crate::http_client::ReceiverUrl;
use prometheus::{PromAnswer, PromSample, PrometheusApi};
use query::Ranking;
use ranking::RankedServices;
use rows::RowKey;

/// Hosts that are asked for all of their services; for more, every series is read at once.
const MOST_INCOMPLETE: usize = 80;

/// Where the fleet's metrics are.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// The base address of the server.
    pub from: ReceiverUrl,
    /// A bearer token for it.
    pub token: Option<String>,
    /// What else it needs, such as the tenant of Mimir.
    pub headers: ExtraHeaders,
    /// The label that names a host.
    pub host_label: String,
    /// The longest time for each query.
    pub within: Duration,
}

/// Why the fleet cannot be seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// No answer.
    #[error("{url}: {why}")]
    Unreachable {
        /// The server.
        url: String,
        /// Why.
        why: String,
    },
    /// The server answered with an error.
    #[error("{url} refused the query: {why}")]
    Refused {
        /// The server.
        url: String,
        /// Why.
        why: String,
    },
    /// What it answered is not an answer of the Prometheus API.
    #[error("{url} does not answer as Prometheus does: {why}")]
    Nonsense {
        /// The server.
        url: String,
        /// Why.
        why: String,
    },
    /// No host reports to it.
    #[error("{url} has no metrics of fdguard serve")]
    NoHosts {
        /// The server.
        url: String,
    },
}

/// The services nearest to a limit, on all hosts.
#[derive(Clone, Debug, Serialize)]
pub struct FleetTop {
    /// `fdguard.fleet.top/1`.
    pub schema: &'static str,
    /// Hosts that report.
    pub hosts: u64,
    /// The services in the order that was asked for.
    pub rows: Vec<FleetRow>,
    /// What could not be seen.
    pub gaps: Vec<Gap>,
}

/// One service on all hosts.
#[derive(Clone, Debug, Serialize)]
pub struct FleetService {
    /// `fdguard.fleet.service/1`.
    pub schema: &'static str,
    /// Its name.
    pub service: String,
    /// The service on each host, by host.
    pub rows: Vec<FleetRow>,
    /// Whether it is the program or the machine.
    pub conclusion: FleetConclusion,
    /// What could not be seen.
    pub gaps: Vec<Gap>,
}

/// A connection to the server.
#[derive(Debug)]
pub struct Fleet {
    api: PrometheusApi,
    host_label: String,
}

impl Fleet {
    /// Prepares the connection; nothing is sent yet.
    pub fn new(options: FleetOptions) -> Result<Self, FleetError> {
        let host_label = options.host_label.clone();
        let api = PrometheusApi::new(options)?;
        Ok(Self { api, host_label })
    }

    /// The first `limit` services of all hosts in this order.
    pub fn top(&self, order: FleetOrder, limit: usize) -> Result<FleetTop, FleetError> {
        let (hosts, mut gaps) = self.hosts()?;
        let mut keys = Vec::new();
        if order == FleetOrder::TimeLeft {
            let least = self.ask(&query::least_time(&self.host_label, limit), &mut gaps)?;
            keys = rows::keys(&least, &self.host_label);
        }
        if keys.len() < limit {
            let ranked = self.rank(Ranking::of(order), &hosts, limit, &mut gaps)?;
            let more = ranked.into_iter().filter(|key| !keys.contains(key));
            keys.extend(more.collect::<Vec<_>>());
        }
        keys.truncate(limit);
        let mut samples = Vec::new();
        for expression in query::details(&self.host_label, &keys) {
            samples.extend(self.ask(&expression, &mut gaps)?);
        }
        let rows = rows::in_order(rows::join(&samples, &self.host_label), &keys);
        Ok(FleetTop {
            schema: "fdguard.fleet.top/1",
            hosts: hosts.len() as u64,
            rows,
            gaps,
        })
    }

    /// One service on all hosts.
    pub fn service(&self, name: &str) -> Result<FleetService, FleetError> {
        let (_, mut gaps) = self.hosts()?;
        let samples = self.ask(&query::service(name), &mut gaps)?;
        let mut rows = rows::join(&samples, &self.host_label);
        rows.sort_by(|a, b| (&a.host, &a.kind).cmp(&(&b.host, &b.kind)));
        Ok(FleetService {
            schema: "fdguard.fleet.service/1",
            service: name.to_owned(),
            conclusion: FleetConclusion::draw(&rows),
            rows,
            gaps,
        })
    }

    /// What is wrong on any host.
    pub fn check(&self, options: &FleetCheckOptions) -> Result<FleetCheck, FleetError> {
        let (hosts, mut gaps) = self.hosts()?;
        let mut problems = Vec::new();
        for question in check::questions(options) {
            let samples = self.ask(&question.expression, &mut gaps)?;
            problems.extend(question.problems(&samples, &self.host_label));
        }
        Ok(FleetCheck {
            schema: "fdguard.fleet.check/1",
            hosts: hosts.len() as u64,
            problems,
            gaps,
        })
    }

    /// The samples of an expression; what is missing becomes a gap.
    fn ask(&self, expression: &str, gaps: &mut Vec<Gap>) -> Result<Vec<PromSample>, FleetError> {
        let answer = self.api.query(expression)?;
        gaps.extend(answer.gap());
        Ok(answer.samples)
    }

    /// The first services in a ranking. Each host ranks its own first services; only where that may
    /// not be enough every service is read.
    fn rank(
        &self,
        ranking: Ranking,
        hosts: &BTreeSet<String>,
        limit: usize,
        gaps: &mut Vec<Gap>,
    ) -> Result<Vec<RowKey>, FleetError> {
        let sizes = self.ask(&ranking.sizes(&self.host_label), gaps)?;
        let mut ranked = RankedServices::new(&self.host_label);
        if !sizes.is_empty() {
            ranked.add(self.ask(&ranking.first(limit), gaps)?);
        }
        let incomplete = ranked.incomplete_hosts(&sizes, hosts, limit);
        let expressions = match incomplete.len() {
            0..=MOST_INCOMPLETE => ranking.of_hosts(&self.host_label, &incomplete, limit),
            _ => vec![ranking.of_all(limit)],
        };
        for expression in expressions {
            ranked.add(self.ask(&expression, gaps)?);
        }
        Ok(ranked.first(limit))
    }

    /// The hosts that report, and as a gap those that did within the last hour and do not now.
    fn hosts(&self) -> Result<(BTreeSet<String>, Vec<Gap>), FleetError> {
        let names = |answer: &PromAnswer| -> BTreeSet<String> {
            let hosts = answer.samples.iter();
            hosts
                .filter_map(|one| one.labels.get(&self.host_label).cloned())
                .collect()
        };
        let [now, before] = query::hosts(&self.host_label);
        let now = names(&self.api.query(&now)?);
        let before = names(&self.api.query(&before)?);
        if now.is_empty() && before.is_empty() {
            return Err(FleetError::NoHosts {
                url: self.api.label(),
            });
        }
        let silent: Vec<&String> = before.difference(&now).collect();
        let gaps = silent_gap(&silent).into_iter().collect();
        Ok((now, gaps))
    }
}

/// Hosts that stopped reporting.
fn silent_gap(silent: &[&String]) -> Option<Gap> {
    const NAMED: usize = 5;
    let first: Vec<&str> = silent
        .iter()
        .take(NAMED)
        .map(|name| name.as_str())
        .collect();
    let beyond = match silent.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = format!(
        "{}: {}{beyond}",
        counted(silent.len() as u64, "host"),
        first.join(", ")
    );
    let why = "they reported within the last hour and do not now";
    let remedy = "check that fdguard serve runs there and can be scraped";
    (!silent.is_empty()).then(|| Gap::new(what, why, remedy))
}
