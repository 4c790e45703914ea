//! The radar: a few facts about every process on the host, without any privilege.

use fdguard_proc::ProcKey;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::snapshot::{Ceilings, Limits};
use crate::wall;
use crate::workload::Workload;
use crate::{Gap, Pid, RowKey, Text};

/// One look at the whole host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostView {
    /// When; absent only in an empty view.
    pub taken_at: Option<Timestamp>,
    /// Every visible process, by pid.
    pub rows: Vec<HostRow>,
    /// The host's own limits.
    pub host: Ceilings,
    /// What could not be read.
    pub gaps: Vec<Gap>,
}

/// The radar's facts about one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostRow {
    /// Number.
    pub pid: Pid,
    /// Parent.
    pub ppid: Option<Pid>,
    /// Start time as the kernel counts it.
    pub start_ticks: Option<u64>,
    /// Command name.
    pub comm: Text,
    /// Real user.
    pub uid: Option<u32>,
    /// Whether it exited and was not waited for.
    pub zombie: bool,
    /// Number of open descriptors; unknown on kernels before 6.2 without the right to list.
    pub count: Option<u64>,
    /// Limits.
    pub limits: Limits,
    /// Size of the descriptor table: an upper bound for the peak.
    pub table_size: Option<u64>,
    /// Its systemd unit, container and pod, where they were looked up.
    #[serde(default)]
    pub workload: Option<Box<Workload>>,
}

impl HostRow {
    /// The identity, when the start time is known.
    #[must_use]
    pub fn key(&self) -> Option<ProcKey> {
        self.row_key().key()
    }

    /// The identity, as far as it is known.
    #[must_use]
    pub fn row_key(&self) -> RowKey {
        RowKey {
            pid: self.pid,
            start_ticks: self.start_ticks,
        }
    }

    /// Count as a share of the soft limit.
    #[must_use]
    pub fn percent_of_soft(&self) -> Option<f64> {
        wall::percent(self.count?, self.limits.soft?)
    }

    /// Whether a number of 1024 or more is or was in use.
    #[must_use]
    pub fn crossed_1024(&self) -> Option<bool> {
        wall::crossed_1024(None, self.table_size)
    }

    /// The range of the highest number ever used: the table doubles when a number does not fit, so
    /// a table of 512 has held a number of 256 or more. Tables start at 64 slots, and one of up to
    /// 256 proves nothing, since the first growth goes straight to 256.
    #[must_use]
    pub fn peak_band(&self) -> Option<(u64, u64)> {
        let size = self.table_size?;
        Some(if size > 256 {
            (size / 2, size - 1)
        } else {
            (0, size.saturating_sub(1))
        })
    }

    /// The limit that applies, and how far away it is: the same that `watch` and `doctor` name, see
    /// [`wall::condition`]. [`crossed_1024`](Self::crossed_1024) reports separately whether a
    /// number of 1024 or more was in use.
    #[must_use]
    pub fn nearest_wall(&self) -> Option<NearestWall> {
        let count = self.count?;
        let soft = self.limits.soft.filter(|soft| *soft > 0)?;
        Some(NearestWall::new("soft-limit", soft, count))
    }
}

/// The limit that a process would reach first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NearestWall {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub at: u64,
    /// What is left.
    pub left: u64,
}

impl NearestWall {
    fn new(name: &'static str, at: u64, used: u64) -> Self {
        Self {
            name,
            at,
            left: at.saturating_sub(used),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HostRow, NearestWall};
    use crate::snapshot::Limits;

    #[test]
    fn r7_the_limit_that_counts_is_the_soft_one_also_near_number_1024() {
        let row = |count, soft| HostRow {
            count,
            limits: Limits { soft, hard: None },
            table_size: Some(1024),
            ..HostRow::default()
        };
        let nearest = |at, left| NearestWall {
            name: "soft-limit",
            at,
            left,
        };
        let of = |count, soft| row(count, soft).nearest_wall();
        assert_eq!(of(Some(960), Some(20_000)), Some(nearest(20_000, 19_040)));
        assert_eq!(of(Some(960), Some(1024)), Some(nearest(1024, 64)));
        assert_eq!(of(Some(960), Some(900)), Some(nearest(900, 0)));
        assert_eq!(of(None, Some(900)), None);
        assert_eq!(of(Some(960), None), None);
    }
}
