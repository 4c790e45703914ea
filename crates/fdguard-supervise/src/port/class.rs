//! Classifies a process that holds the address.

use fdguard_core::Pid;
use fdguard_probe::linux::socket_holders::IdentifiedProcess;
use fdguard_proc::ProcKey;
use fdguard_process::run_id::RunId;

/// How a process is related to this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderClass {
    /// Part of this run: in the started tree, or fdguard itself.
    OursNow,
    /// Left behind by an earlier run of this service.
    OursBefore {
        /// The evidence.
        because: String,
    },
    /// Unrelated, or unknown: never signalled.
    Stranger {
        /// Why it is unrelated.
        because: String,
    },
}

/// What identifies this run.
#[derive(Clone, Copy, Debug)]
pub struct OwnProcesses<'a> {
    /// The running processes in the tree of this run.
    pub members: &'a [Pid],
    /// The name of the service.
    pub service: &'a str,
    /// Registered processes of earlier runs.
    pub registered: &'a [ProcKey],
}

/// Classifies a process. `is_running` reports whether the supervisor of a run is alive.
#[must_use]
pub fn classify(
    who: &IdentifiedProcess,
    ours: &OwnProcesses<'_>,
    is_running: impl Fn(&RunId) -> bool,
) -> HolderClass {
    let pid = who.process.pid;
    if ours.members.contains(&pid) || pid == std::process::id() {
        return HolderClass::OursNow;
    }
    let stranger = |because: &str| HolderClass::Stranger {
        because: because.to_owned(),
    };
    if who
        .process
        .key()
        .is_some_and(|key| ours.registered.contains(&key))
    {
        let because = "it is registered as a process of an earlier run".to_owned();
        return HolderClass::OursBefore { because };
    }
    if !who.environment_read {
        return stranger("its environment cannot be read");
    }
    let run = who
        .variable
        .as_deref()
        .and_then(|it| std::str::from_utf8(it).ok());
    let Some(run) = run.and_then(|text| text.parse::<RunId>().ok()) else {
        return stranger("it was not started by fdguard");
    };
    if run.service != ours.service {
        return stranger(&format!("it belongs to service {}", run.service));
    }
    // In another namespace the supervisor's pid means another process: its absence there proves
    // nothing.
    if who.same_pid_namespace != Some(true) {
        return stranger("it is in another PID namespace");
    }
    if is_running(&run) {
        return stranger(&format!(
            "it belongs to another run that is still active (pid {})",
            run.supervisor.pid
        ));
    }
    let because = format!(
        "the run that started it (pid {}) has ended",
        run.supervisor.pid
    );
    HolderClass::OursBefore { because }
}

#[cfg(test)]
mod tests {
    use fdguard_core::snapshot::Process;
    use fdguard_probe::Probe;
    use fdguard_probe::linux::socket_holders::IdentifiedProcess;
    use fdguard_proc::ProcKey;

    use super::{HolderClass, OwnProcesses, classify};

    /// A process from the probe, with the relevant fields replaced.
    fn somebody(variable: Option<&str>) -> IdentifiedProcess {
        let own = Probe::new()
            .unwrap()
            .who_is(std::process::id(), "X")
            .unwrap();
        IdentifiedProcess {
            process: Process {
                pid: 4_000_000_000,
                start_ticks: Some(77),
                ..own.process
            },
            variable: variable.map(|it| it.as_bytes().to_vec()),
            environment_read: true,
            same_pid_namespace: Some(true),
        }
    }

    const OURS: OwnProcesses<'_> = OwnProcesses {
        members: &[11],
        service: "web",
        registered: &[],
    };

    fn is_before(class: &HolderClass) -> bool {
        matches!(class, HolderClass::OursBefore { .. })
    }

    fn is_stranger(class: &HolderClass) -> bool {
        matches!(class, HolderClass::Stranger { .. })
    }

    #[test]
    fn of_this_run_are_its_members_and_ourselves() {
        let mut who = somebody(None);
        who.process.pid = 11;
        assert_eq!(classify(&who, &OURS, |_| true), HolderClass::OursNow);
        who.process.pid = std::process::id();
        assert_eq!(classify(&who, &OURS, |_| true), HolderClass::OursNow);
    }

    #[test]
    fn of_an_earlier_run_is_what_a_dead_supervisor_of_the_same_service_started() {
        let who = somebody(Some("7.9:web"));
        assert!(is_before(&classify(&who, &OURS, |_| false)));
        assert!(is_stranger(&classify(&who, &OURS, |_| true)), "it goes on");
    }

    #[test]
    fn everything_else_is_a_stranger() {
        let cases = [
            somebody(None),
            somebody(Some("")),
            somebody(Some("7.9:webserver")),
            somebody(Some("web")),
            IdentifiedProcess {
                same_pid_namespace: Some(false),
                ..somebody(Some("7.9:web"))
            },
            IdentifiedProcess {
                same_pid_namespace: None,
                ..somebody(Some("7.9:web"))
            },
            IdentifiedProcess {
                environment_read: false,
                ..somebody(None)
            },
        ];
        for who in cases {
            let class = classify(&who, &OURS, |_| false);
            assert!(is_stranger(&class), "{who:?}: {class:?}");
        }
    }

    #[test]
    fn a_registered_process_is_known_by_number_and_start() {
        let registered = |start_ticks| {
            [ProcKey {
                pid: 4_000_000_000,
                start_ticks,
            }]
        };
        let (same, reused) = (registered(77), registered(76));
        let with = |registered| OwnProcesses { registered, ..OURS };
        assert!(is_before(&classify(&somebody(None), &with(&same), |_| {
            false
        })));
        assert!(is_stranger(&classify(
            &somebody(None),
            &with(&reused),
            |_| false
        )));
    }
}
