//! fdguard's canary on `fdguard serve` itself: processes that come and go, and clients, leave no
//! descriptor behind.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fdguard_canary::{Baseline, LeftOpen};
use fdguard_core::config::{Levels, Suppressions};
use fdguard_core::playbook::Playbook;
use fdguard_core::rule::RuleSettings;
use fdguard_serve::{PushOptions, ServeOptions, Serving, StoreOptions, WebSettings};
use serde_json::Value;
use testkit::Victim;

/// Short programs in one round.
const PROGRAMS: usize = 100;
const ROUNDS: usize = 3;

fn options(state: &Path) -> ServeOptions {
    ServeOptions {
        host: "test-host".to_owned(),
        every: Duration::from_millis(50),
        budget: 1.0,
        max_watched: 256,
        resolve_after: Duration::from_secs(2),
        sample_every: Duration::from_millis(50),
        history: Some(StoreOptions {
            path: state.join("history.db"),
            keep: Duration::from_secs(86_400),
            max_disk: 64 << 20,
        }),
        scratch: None,
        evidence: None,
        alertmanager: None,
        webhook: None,
        push: PushOptions::default(),
        trace: None,
        fleet: None,
        program: None,
        web: WebSettings {
            view: None,
            act: None,
            public_metrics: true,
            hosts: Vec::new(),
            origins: Vec::new(),
            max_connections: 64,
            max_series: 10_000,
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

fn get(address: SocketAddr, path: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let body = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
    answer.split_off(body)
}

fn overview(address: SocketAddr) -> Value {
    serde_json::from_slice(&get(address, "/api/v1/overview")).unwrap()
}

fn is_watched(address: SocketAddr, pid: u32) -> bool {
    let overview = overview(address);
    let mut watched = overview["watched"].as_array().unwrap().iter();
    watched.any(|one| one["pid"] == pid)
}

/// Programs that end at once, one that is watched and ends, and clients.
fn churn(address: SocketAddr) {
    let mut victim = Victim::of("leaker").nofile(100).start();
    victim.tell("80 file");
    let pid = victim.pid();
    testkit::wait_until("the watch", || is_watched(address, pid));
    for _ in 0..PROGRAMS {
        assert!(Command::new("true").status().unwrap().success());
    }
    for path in [
        "/metrics",
        "/api/v1/processes",
        "/api/v1/findings?older=true",
    ] {
        get(address, path);
    }
    get(address, &format!("/api/v1/snapshot?pid={pid}"));
    victim.finish();
    testkit::wait_until("the end of the watch", || !is_watched(address, pid));
}

/// A watch of a process that belongs to others may begin at any time.
fn is_of_living(left: &LeftOpen) -> bool {
    let pid = left.target.strip_prefix("/proc/");
    let pid = pid.and_then(|rest| rest.split('/').next());
    pid.is_some_and(|pid| Path::new("/proc").join(pid).exists())
}

#[test]
fn serve_returns_to_its_own_baseline_after_churn() {
    let state = tempfile::tempdir().unwrap();
    let before = Baseline::take();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let log = Arc::new(|_: &_| {});
    let serving =
        Serving::start(options(state.path()), settings(), vec![socket.into()], log).unwrap();
    let address = serving.addresses()[0];
    churn(address);
    let running = Baseline::take();
    for _ in 0..ROUNDS {
        churn(address);
    }
    // In the middle of a tick something is open for a moment.
    testkit::wait_until("the baseline", || match running.compare() {
        Ok(()) => true,
        Err(after) => after.unseen.is_none() && after.left.iter().all(is_of_living),
    });
    serving.stop();
    before.assert_restored();
}
