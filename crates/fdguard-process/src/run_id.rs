//! The `fdguard run` that a process belongs to: `FDGUARD_RUN` in its environment.

use std::fmt;
use std::str::FromStr;

use fdguard_proc::ProcKey;

/// The variable that every process of a run inherits.
pub const VARIABLE: &str = "FDGUARD_RUN";

/// One run: the supervisor's process, by pid and start time, and the name of the service. Written
/// `PID.START:NAME`.
///
/// The id alone shows whether the run is still going on; no registry is needed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunId {
    /// The supervisor.
    pub supervisor: ProcKey,
    /// The service.
    pub service: String,
}

/// The text is not a [`RunId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a run id: expected PID.START:NAME")]
pub struct NoRunId;

impl RunId {
    /// The run of this process, for a service of this name.
    #[must_use]
    pub fn own(service: &str) -> Option<Self> {
        Some(Self {
            supervisor: ProcKey::current().ok()?,
            service: service.to_owned(),
        })
    }

    /// Whether its supervisor is alive. Only for runs in the same PID namespace: elsewhere the pid
    /// means another process.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.supervisor.is_alive()
    }
}

impl FromStr for RunId {
    type Err = NoRunId;

    fn from_str(text: &str) -> Result<Self, NoRunId> {
        let parse = || {
            let (process, service) = text.split_once(':')?;
            let (pid, start) = process.split_once('.')?;
            let supervisor = ProcKey {
                pid: pid.parse().ok()?,
                start_ticks: start.parse().ok()?,
            };
            let service = service.to_owned();
            Some(Self {
                supervisor,
                service,
            })
        };
        parse().ok_or(NoRunId)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProcKey { pid, start_ticks } = self.supervisor;
        write!(f, "{pid}.{start_ticks}:{}", self.service)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ProcKey, RunId};

    #[test]
    fn our_own_run_is_running_and_one_before_it_is_not() {
        let mut run = RunId::own("web").unwrap();
        assert!(run.is_running());
        run.supervisor.start_ticks -= 1;
        assert!(!run.is_running(), "the pid was used again");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(pid: u32, start_ticks: u64, service in "[^\\x00]{0,20}") {
            let supervisor = ProcKey { pid, start_ticks };
            let id = RunId { supervisor, service };
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }

        #[test]
        fn any_text_is_survived(text: String) {
            drop(text.parse::<RunId>());
        }
    }
}
