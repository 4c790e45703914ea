//! What ran when the history was written last: so that a start of fdguard serve is no restart of
//! the services, and a restart or a deploy in between is seen. Pure.

use std::collections::{BTreeSet, HashMap};

use fdguard_proc::stat::TICKS_PER_SECOND;
use fdguard_proc::{BootId, ProcKey};
use jiff::Timestamp;

use crate::program_stamp::ProgramStamp;
use crate::service::ServiceKey;

/// A service that was not running at the start may still continue its series for this long, in
/// seconds: at boot fdguard serve is often there first.
const AWAITED: f64 = 3600.0;

/// A running service, as the history has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptService {
    pub(crate) key: ServiceKey,
    /// Its eldest process.
    pub(crate) process: ProcKey,
    /// `None` if it could not be read.
    pub(crate) program: Option<ProgramStamp>,
}

/// When the history was written last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ServingMoment {
    /// The time of day.
    pub(crate) at: Timestamp,
    pub(crate) boot: BootId,
    /// Seconds since the machine started.
    pub(crate) uptime: f64,
}

/// The services of the time before this start.
#[derive(Debug, Default)]
pub(crate) struct PastServices {
    moment: Option<ServingMoment>,
    services: HashMap<ServiceKey, KeptService>,
    has_reported: bool,
}

/// How a service that was known goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Continuation {
    /// Its processes are those of before, or ran beside them.
    Continued(KeptService),
    /// All of its processes are new.
    Restarted(KeptService),
}

impl PastServices {
    pub(crate) fn new(moment: ServingMoment, services: Vec<KeptService>) -> Self {
        let services = services.into_iter().map(|one| (one.key.clone(), one));
        Self {
            moment: Some(moment),
            services: services.collect(),
            has_reported: false,
        }
    }

    /// When the history was written last.
    pub(crate) fn moment(&self) -> Option<ServingMoment> {
        self.moment
    }

    /// A service appears with these processes; `None` if it was not running before.
    pub(crate) fn meet(
        &mut self,
        key: &ServiceKey,
        members: &BTreeSet<ProcKey>,
        boot: BootId,
    ) -> Option<Continuation> {
        let moment = self.moment?;
        let kept = self.services.remove(key)?;
        let is_old = |member: &ProcKey| {
            *member == kept.process
                || member.start_ticks as f64 / f64::from(TICKS_PER_SECOND) <= moment.uptime
        };
        let is_continued = boot == moment.boot && members.iter().any(is_old);
        Some(match is_continued {
            true => Continuation::Continued(kept),
            false => Continuation::Restarted(kept),
        })
    }

    /// After the first scan: the services that are no longer there. They may still come back.
    pub(crate) fn stopped(&mut self) -> Vec<ServiceKey> {
        if std::mem::replace(&mut self.has_reported, true) {
            return Vec::new();
        }
        let mut stopped: Vec<ServiceKey> = self.services.keys().cloned().collect();
        stopped.sort();
        stopped
    }

    /// Forgets services that did not come back; `now` counts from the start.
    pub(crate) fn forget(&mut self, now: f64) {
        if now > AWAITED {
            self.services = HashMap::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fdguard_proc::{BootId, ProcKey};
    use jiff::Timestamp;

    use super::{Continuation, KeptService, PastServices, ServingMoment};
    use crate::service::{ServiceKey, ServiceKind};

    fn boot(digit: char) -> BootId {
        let text = "00000000-0000-0000-0000-00000000000".to_owned() + &digit.to_string();
        text.parse().unwrap()
    }

    fn web() -> ServiceKey {
        ServiceKey::new(ServiceKind::Unit, "web.service")
    }

    fn process(pid: u32, start_ticks: u64) -> ProcKey {
        ProcKey { pid, start_ticks }
    }

    /// It served until 500 seconds after the machine started.
    fn past() -> PastServices {
        let moment = ServingMoment {
            at: Timestamp::UNIX_EPOCH,
            boot: boot('a'),
            uptime: 500.0,
        };
        let kept = KeptService {
            key: web(),
            process: process(7, 1_000),
            program: None,
        };
        PastServices::new(moment, vec![kept])
    }

    fn is_restarted(members: &[ProcKey], now: BootId) -> Option<bool> {
        let members: BTreeSet<ProcKey> = members.iter().copied().collect();
        let met = past().meet(&web(), &members, now)?;
        Some(matches!(met, Continuation::Restarted(_)))
    }

    #[test]
    fn a_service_goes_on_unless_all_of_its_processes_are_new() {
        let old = process(7, 1_000);
        assert_eq!(is_restarted(&[old], boot('a')), Some(false));
        // A worker that ran beside the process that was written down.
        assert_eq!(is_restarted(&[process(8, 49_000)], boot('a')), Some(false));
        assert_eq!(is_restarted(&[process(8, 51_000)], boot('a')), Some(true));
        assert_eq!(is_restarted(&[old], boot('b')), Some(true), "another boot");
    }

    #[test]
    fn what_is_not_there_any_more_is_reported_once_and_may_return() {
        let mut past = past();
        assert_eq!(past.stopped(), [web()]);
        assert!(past.stopped().is_empty());
        let members = BTreeSet::from([process(9, 60_000)]);
        let met = past.meet(&web(), &members, boot('a'));
        assert!(matches!(met, Some(Continuation::Restarted(_))));
        assert_eq!(past.meet(&web(), &members, boot('a')), None);
    }

    #[test]
    fn after_an_hour_a_service_is_a_new_one() {
        let mut past = past();
        past.forget(4_000.0);
        let members = BTreeSet::from([process(9, 60_000)]);
        assert_eq!(past.meet(&web(), &members, boot('a')), None);
    }
}
