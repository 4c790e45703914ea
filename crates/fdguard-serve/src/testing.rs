//! Services and findings for tests.

use fdguard_core::judge::Verdict;
use jiff::Timestamp;

use crate::overview::ServiceView;
use crate::service::{ServiceKey, ServiceKind};

/// A unit with this many descriptors of 1000.
pub(crate) fn service(name: &str, count: u64) -> ServiceView {
    ServiceView {
        key: ServiceKey::new(ServiceKind::Unit, name),
        workload: None,
        processes: 1,
        watched: 0,
        open_fds: Some(count),
        limit: Some(1000),
        hard_limit: Some(1000),
        select_limit: None,
        usage_ratio: Some(count as f64 / 1000.0),
        growth_per_second: Some(0.0),
        verdict: Verdict::Unknown,
        seconds_to_limit: Vec::new(),
        classes: None,
        targets: None,
        findings: Vec::new(),
        restarts: 0,
        since: Timestamp::UNIX_EPOCH,
    }
}
