//! LeakBench: small programs, measured and judged as the supervisor does.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of the test functions"
)]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use fdguard_core::Class;
use fdguard_probe::Probe;
use fdguard_supervise::budget::{
    BudgetHistory, BudgetSetting, BudgetVerdict, Kind, effective, judge,
};
use fdguard_supervise::meter::{Leak, Meter};
use fdguard_supervise::poll::Interest;

/// A program that has reported that it is ready.
struct Program {
    child: Child,
    /// Kept open, so that it can continue writing.
    _stdout: BufReader<ChildStdout>,
    _dir: tempfile::TempDir,
}

impl Program {
    /// With this soft limit, for this many seconds, at this rate.
    fn start(name: &str, soft: u64, seconds: u64, rate: u64) -> Self {
        let bench = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../leakbench/open");
        let start = bench.join(name).join("start");
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new("/bin/sh")
            .args(["-c", "ulimit -Sn $1 && exec $0"])
            .arg(start)
            .arg(soft.to_string())
            .env("LB_SECONDS", seconds.to_string())
            .env("LB_RATE", rate.to_string())
            .env("LB_WORK", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert!(line.starts_with("READY"), "{line}");
        Self {
            child,
            _stdout: stdout,
            _dir: dir,
        }
    }

    /// Every verdict until action is needed, or until its end.
    fn judged(&mut self, budgets: &[&str]) -> (Vec<BudgetVerdict>, Vec<Leak>) {
        let given: Vec<BudgetSetting> = budgets.iter().map(|text| text.parse().unwrap()).collect();
        let budgets = effective(&given);
        let probe = Probe::new().unwrap();
        let mut meter = Meter::new(&probe, &budgets, Instant::now());
        let (mut memory, mut told) = (BudgetHistory::default(), Vec::new());
        let pid = self.child.id();
        while self.child.try_wait().unwrap().is_none() {
            let reading = meter.poll(Instant::now(), &[pid]);
            if let Some(reading) = reading.filter(|reading| reading.of_main().is_some()) {
                told.extend(judge(&budgets, &reading, &mut memory));
            }
            if told.iter().any(|one| matches!(one.kind, Kind::Act(_))) {
                break;
            }
            let mut wants = Interest::default();
            meter.wants(&mut wants);
            wants.until(Instant::now() + Duration::from_secs(1));
            wants.wait().unwrap();
        }
        let leaks = meter.leaks();
        (told, leaks)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have exited.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[test]
fn r29_a_leak_of_process_handles_is_acted_on_and_named() {
    let mut program = Program::start("py-pidfd-open", 128, 60, 20);
    let (told, leaks) = program.judged(&[]);
    let kinds: Vec<&Kind> = told.iter().map(|one| &one.kind).collect();
    assert!(
        matches!(kinds[..], [Kind::Warn(_), Kind::Act(_)]),
        "{told:?}"
    );
    assert_eq!(leaks[0].class, Some(Class::Pidfd), "{leaks:?}");
    assert!(leaks[0].count >= 20, "{leaks:?}");
}

/// Half a minute: growth is judged after forty looks.
#[test]
fn r29_heavy_traffic_without_a_leak_is_left_alone() {
    let mut program = Program::start("py-churn", 256, 30, 60);
    let (told, _) = program.judged(&["wall=1h:30m", "growth=1:5"]);
    assert!(told.is_empty(), "{told:?}");
    let ended = program.child.wait().unwrap();
    assert!(ended.success(), "it was watched to its own end: {ended}");
}
