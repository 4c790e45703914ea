//! The fleet: all hosts with a serving fdguard, as a server with the Prometheus HTTP API knows them
//! (Prometheus, VictoriaMetrics, Mimir, Thanos). Nothing is stored here; every answer is a few
//! queries.

mod check;
mod prometheus;
mod query;
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

use crate::http_client::ReceiverUrl;
use prometheus::{PromAnswer, PrometheusApi};

/// Where the fleet's metrics are.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// The base address of the server.
    pub from: ReceiverUrl,
    /// A bearer token for it.
    pub token: Option<String>,
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
        for expression in query::rank(order, &self.host_label, limit) {
            let ranked = self.api.query(&expression)?;
            gaps.extend(ranked.gap());
            let found = rows::keys(&ranked.samples, &self.host_label);
            keys.extend(
                found
                    .into_iter()
                    .filter(|key| !keys.contains(key))
                    .collect::<Vec<_>>(),
            );
            if keys.len() >= limit {
                break;
            }
        }
        keys.truncate(limit);
        let mut samples = Vec::new();
        for expression in query::details(&self.host_label, &keys) {
            let answer = self.api.query(&expression)?;
            gaps.extend(answer.gap());
            samples.extend(answer.samples);
        }
        let rows = rows::in_order(rows::join(&samples, &self.host_label), &keys);
        Ok(FleetTop {
            schema: "fdguard.fleet.top/1",
            hosts,
            rows,
            gaps,
        })
    }

    /// One service on all hosts.
    pub fn service(&self, name: &str) -> Result<FleetService, FleetError> {
        let (_, mut gaps) = self.hosts()?;
        let answer = self.api.query(&query::service(name))?;
        gaps.extend(answer.gap());
        let mut rows = rows::join(&answer.samples, &self.host_label);
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
            let answer = self.api.query(&question.expression)?;
            gaps.extend(answer.gap());
            problems.extend(question.problems(&answer.samples, &self.host_label));
        }
        Ok(FleetCheck {
            schema: "fdguard.fleet.check/1",
            hosts,
            problems,
            gaps,
        })
    }

    /// How many hosts report, and which did within the last hour and do not now.
    fn hosts(&self) -> Result<(u64, Vec<Gap>), FleetError> {
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
        Ok((now.len() as u64, silent_gap(&silent).into_iter().collect()))
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
