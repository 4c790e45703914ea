//! The loop with clocks that a test sets, and what a start learns from the history.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fdguard_core::config::{Levels, Suppressions};
use fdguard_core::log_event::LogEvent;
use fdguard_core::playbook::Playbook;
use fdguard_core::rule::RuleSettings;
use fdguard_probe::Probe;
use fdguard_proc::ProcKey;
use jiff::{SignedDuration, Timestamp};
use testkit::FakeProc;

use super::{
    Couriers, LogSink, LoopOrder, LoopParts, PushOptions, ServeLoop, ServeOptions, past_services,
};
use crate::host_clock::HostClocks;
use crate::past_services::{KeptService, ServingMoment};
use crate::service::{ServiceKey, ServiceKind};
use crate::store::{RunningNote, StoreFile, StoreOptions, read_history};
use crate::web::WebSettings;

fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn after(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

fn store(dir: &Path) -> StoreOptions {
    StoreOptions {
        path: dir.join("history.db"),
        keep: Duration::from_secs(7 * 86_400),
        max_disk: 1 << 26,
    }
}

fn options(dir: &Path) -> ServeOptions {
    ServeOptions {
        host: "test-host".to_owned(),
        every: Duration::from_secs(30),
        budget: 1.0,
        max_watched: 16,
        resolve_after: Duration::from_secs(120),
        sample_every: Duration::from_secs(1),
        history: Some(store(dir)),
        evidence: None,
        alertmanager: None,
        webhook: None,
        push: PushOptions::default(),
        trace: None,
        fleet: None,
        program: None,
        scratch: None,
        web: WebSettings {
            view: None,
            act: None,
            public_metrics: false,
            hosts: Vec::new(),
            origins: Vec::new(),
            max_connections: 1,
            max_series: 100,
            tls: None,
        },
    }
}

fn settings() -> RuleSettings {
    RuleSettings {
        levels: Levels::default(),
        expectations: Vec::new(),
        suppressions: Suppressions::default(),
        playbook: Playbook::embedded(),
        today: "2026-11-18".parse().unwrap(),
    }
}

/// Time passes only while the loop waits; the system clock is set at some moments.
struct ScriptedClocks {
    passed: Duration,
    /// From each second on, how far the system clock is off.
    jumps: Vec<(u64, i64)>,
    /// When the loop is stopped.
    end: Duration,
}

impl HostClocks for ScriptedClocks {
    fn monotonic(&self) -> Duration {
        self.passed
    }

    fn awake_and_asleep(&self) -> Duration {
        self.passed + Duration::from_secs(100)
    }

    fn time_of_day(&self) -> Timestamp {
        let passed = self.passed.as_secs();
        let jumps = self.jumps.iter().rev();
        let off = jumps.clone().find(|(from, _)| passed >= *from);
        after(i64::try_from(passed).unwrap() + off.map_or(0, |(_, off)| *off))
    }

    fn wait<T>(&mut self, orders: &Receiver<T>, most: Duration) -> Result<T, RecvTimeoutError> {
        if self.passed >= self.end {
            return orders.recv_timeout(Duration::ZERO);
        }
        self.passed += most;
        Err(RecvTimeoutError::Timeout)
    }
}

/// Runs the loop for 2000 seconds of these clocks. Returns the times of the samples, in seconds
/// since the start, the gaps, and the events of the log about the clock.
fn run(jumps: &[(u64, i64)]) -> (Vec<i64>, Vec<String>, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = FakeProc::new();
    let _process = tree.process(10).comm(b"app");
    let probe = Probe::at(tree.root()).unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    let log: LogSink = Arc::new(move |event: &LogEvent| kept.lock().unwrap().push(event.line()));
    let parts = LoopParts::prepare(&options(dir.path()), settings(), &log).unwrap();
    let (stop, orders) = sync_channel(1);
    stop.send(LoopOrder::Stop).unwrap();
    let ticks = ServeLoop {
        every: Duration::from_secs(30),
        orders,
        clocks: ScriptedClocks {
            passed: Duration::ZERO,
            jumps: jumps.to_vec(),
            end: Duration::from_secs(2000),
        },
    };
    ticks.run(&probe, parts, Couriers::default());
    let history = read_history(&dir.path().join("history.db"), "app", None).unwrap();
    let samples = history[0].samples.iter();
    let times = samples.map(|sample| sample.at.as_second() - start().as_second());
    let gaps = history[0].losses.iter().map(|loss| loss.why.clone());
    let lines = lines.lock().unwrap();
    let clock = lines.iter().filter(|line| line.contains("event=clock_"));
    (times.collect(), gaps.collect(), clock.cloned().collect())
}

#[test]
fn a_clock_that_jumps_and_returns_leaves_no_trace_in_the_history() {
    let year = 365 * 86_400;
    let (times, gaps, log) = run(&[(600, year), (900, 0)]);
    assert!(times.is_sorted(), "{times:?}");
    assert!(times.iter().all(|at| (0..=2000).contains(at)), "{times:?}");
    assert_eq!(gaps, [""; 0]);
    assert_eq!(log.len(), 2, "{log:?}");
    assert!(log[0].contains("event=clock_jumped") && log[1].contains("event=clock_returned"));
}

#[test]
fn a_clock_that_was_set_is_followed_and_the_history_says_so() {
    let (times, gaps, log) = run(&[(600, 7200)]);
    assert!(times.first().is_some_and(|at| *at < 600), "{times:?}");
    assert!(times.last().is_some_and(|at| *at > 7800), "{times:?}");
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert!(gaps[0].contains("set forward by 7200 s"), "{gaps:?}");
    assert!(
        log.last().unwrap().contains("event=clock_believed"),
        "{log:?}"
    );
}

#[test]
fn the_time_without_fdguard_serve_is_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let (mut file, _) = StoreFile::open(store(dir.path()), start()).unwrap();
    assert!(
        past_services(&mut file, start())
            .unwrap()
            .moment()
            .is_none()
    );
    let web = ServiceKey::new(ServiceKind::Unit, "web.service");
    let moment = ServingMoment {
        at: start(),
        boot: "00000000-0000-0000-0000-00000000000a".parse().unwrap(),
        uptime: 500.0,
    };
    let kept = KeptService {
        key: web.clone(),
        process: ProcKey {
            pid: 7,
            start_ticks: 1_000,
        },
        program: None,
    };
    let note = RunningNote {
        moment,
        running: vec![kept.clone()],
        ended: Vec::new(),
    };
    file.note_running(&note).unwrap();
    assert_eq!(file.running().unwrap(), Some((moment, vec![kept])));
    past_services(&mut file, after(20)).unwrap();
    past_services(&mut file, after(3600)).unwrap();
    let gone = RunningNote {
        running: Vec::new(),
        ended: vec![web],
        ..note
    };
    file.note_running(&gone).unwrap();
    assert_eq!(file.running().unwrap(), Some((moment, Vec::new())));
    let mut losses = Vec::new();
    file.read_rows("SELECT why FROM loss", |row| {
        losses.push(row.get::<_, String>(0)?);
        Ok(())
    })
    .unwrap();
    let why = "not recorded from 2027-01-15 08:00:00Z to 2027-01-15 09:00:00Z: \
               fdguard serve did not run";
    assert_eq!(losses, [why]);
}
