//! The bounds of a relief.

use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

/// No drain takes longer.
pub(super) const LONGEST_DRAIN: Duration = Duration::from_secs(300);
/// No evidence takes longer.
const LONGEST_EVIDENCE: Duration = Duration::from_secs(30);
/// The least that is worth it: a look and a short watch.
const SHORTEST_EVIDENCE: Duration = Duration::from_secs(2);
/// A breach so soon after a relief is again at once, however short that relief was.
const LEAST_AGAIN: Duration = Duration::from_secs(60);
/// A service that is away for more than a part of its time (one in six) is not kept alive by
/// restarts.
const TIMES_DOWN: u32 = 5;
/// After so many times the same quiet, a breach is another story.
pub(super) const CALM: u32 = 10;

/// How a relief goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemedySettings {
    /// For the evidence, 30 s at most; nothing for none.
    pub evidence: Duration,
    /// For the drain, 300 s at most; nothing for none.
    pub drain: Duration,
    /// For the end of the tree: more than its own grace.
    pub stop: Duration,
    /// From the end of the old processes to the start of the new one.
    pub start: Duration,
    /// From the start to the answer.
    pub prove: Duration,
    /// A breach this soon after the last relief is again at once. When absent: five times as long
    /// as that relief kept the service from its work, and a minute at least.
    pub again_within: Option<Duration>,
    /// A breach this soon after a start is one of a program at rest.
    pub at_start: Duration,
    /// What becomes of a service that restarts cannot help.
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

    /// The longest that a relief can take.
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

    /// How soon after a relief that kept the service down for so long a breach is again at once.
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
    /// It keeps running: a service near its limit answers more than one that is down.
    #[default]
    Keep,
    /// It is ended, and the supervisor with it.
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
