//! The settings of a lifecycle, and the bounds of its remedies.

use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use super::policy::RestartPolicy;
use crate::config::{Background, ServiceConfig};

/// The longest drain.
const LONGEST_DRAIN: Duration = Duration::from_secs(300);
/// The longest time for evidence.
const LONGEST_EVIDENCE: Duration = Duration::from_secs(30);
/// The shortest time that is worthwhile: a snapshot and a short watch.
const SHORTEST_EVIDENCE: Duration = Duration::from_secs(2);
/// A breach this soon after a remedy counts as repeated, however short that remedy was.
const LEAST_AGAIN: Duration = Duration::from_secs(60);
/// Restarts do not help a service that is down for more than one sixth of its time.
const TIMES_DOWN: u32 = 5;
/// After this many times that period without a breach, a breach is a new one.
pub(super) const CALM: u32 = 10;

/// What decides about a service.
#[derive(Clone, Debug)]
pub(crate) struct LifecycleSettings {
    pub(crate) policy: RestartPolicy,
    pub(crate) remedy: RemedySettings,
    pub(crate) background: Background,
    /// From the request to stop to the kill.
    pub(crate) grace: Duration,
    /// Whether fdguard ends with the program.
    pub(crate) once: bool,
    /// Whether a supervisor restarts fdguard.
    pub(crate) is_supervised: bool,
}

impl LifecycleSettings {
    pub(crate) fn new(service: &ServiceConfig, once: bool, is_supervised: bool) -> Self {
        Self {
            policy: service.policy.clone(),
            remedy: service.relief.bounded(),
            background: service.background,
            grace: service.stop.grace,
            once,
            is_supervised,
        }
    }
}

/// The settings of a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemedySettings {
    /// For the evidence, 30 s at most; zero for none.
    pub evidence: Duration,
    /// For the drain, 300 s at most; zero for none.
    pub drain: Duration,
    /// For stopping the tree: more than its own grace period.
    pub stop: Duration,
    /// From the end of the old processes to the start of the new one.
    pub start: Duration,
    /// From the start to the answer.
    pub prove: Duration,
    /// A breach this soon after the last remedy counts as repeated. When absent: five times as long
    /// as that remedy interrupted the service, and at least a minute.
    pub again_within: Option<Duration>,
    /// A breach this soon after a start means that the program needs this much at rest.
    pub at_start: Duration,
    /// What to do with a service that restarts cannot help.
    pub when_again: RepeatPolicy,
}

impl Default for RemedySettings {
    fn default() -> Self {
        Self {
            evidence: LONGEST_EVIDENCE,
            drain: Duration::ZERO,
            stop: Duration::from_secs(30),
            start: Duration::from_secs(60),
            prove: Duration::from_secs(120),
            again_within: None,
            at_start: Duration::from_secs(10),
            when_again: RepeatPolicy::Keep,
        }
    }
}

impl RemedySettings {
    pub(super) fn bounded(self) -> Self {
        Self {
            evidence: self.evidence.min(LONGEST_EVIDENCE),
            drain: self.drain.min(LONGEST_DRAIN),
            again_within: self.again_within.map(|within| within.max(LEAST_AGAIN)),
            ..self
        }
    }

    /// The longest that a remedy can take.
    #[must_use]
    pub fn longest(&self) -> Duration {
        let rules = self.bounded();
        rules.evidence + rules.drain + rules.stop + rules.start + rules.prove
    }

    /// Half of the time until the limit: a service that no longer works yields no evidence.
    pub(super) fn evidence_within(&self, left: Option<Duration>) -> Duration {
        let half = left.map_or(self.evidence, |left| left / 2);
        half.max(SHORTEST_EVIDENCE).min(self.evidence)
    }

    /// How soon after a remedy that interrupted the service for this long a breach counts as
    /// repeated.
    pub(super) fn again(&self, down: Option<Duration>) -> Duration {
        let own = || {
            down.unwrap_or_default()
                .saturating_mul(TIMES_DOWN)
                .max(LEAST_AGAIN)
        };
        self.again_within.unwrap_or_else(own)
    }
}

/// What to do with a service whose budget is breached again at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RepeatPolicy {
    /// It keeps running: a service near its limit answers more requests than one that is down.
    #[default]
    Keep,
    /// It is stopped, and the supervisor with it.
    Stop,
}

impl FromStr for RepeatPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "keep" => Ok(Self::Keep),
            "stop" => Ok(Self::Stop),
            _ => Err(format!("{text:?} is not one of keep, stop")),
        }
    }
}
