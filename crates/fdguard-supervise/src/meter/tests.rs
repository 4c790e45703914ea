use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use fdguard_core::Class;
use fdguard_probe::Probe;
use testkit::{Victim, VictimLaunch, victim_path};

use super::Meter;
use crate::budget::{
    Budget, BudgetHistory, BudgetSetting, HighestFd, Kind, Observation, defaults, effective, judge,
};

fn budgets(texts: &[&str]) -> Vec<Budget> {
    let given: Vec<BudgetSetting> = texts.iter().map(|text| text.parse().unwrap()).collect();
    effective(&given)
}

fn leaker(soft: u64) -> Victim {
    VictimLaunch::program(&victim_path("leaker"))
        .nofile(soft)
        .start()
}

#[test]
fn a_victim_is_counted_against_its_own_limit() {
    let probe = Probe::new().unwrap();
    let mut victim = leaker(300);
    let start = Instant::now();
    let mut meter = Meter::new(&probe, &defaults(), start);
    let first = meter.read(start, &[victim.pid()]);
    let seen = first.of_main().unwrap();
    assert_eq!(seen.limits.soft, Some(300));
    assert_eq!(seen.count.seen().copied(), victim.line()["count"].as_u64());
    assert_eq!(seen.classes, Observation::NotYet, "so few are not listed");
    let said = victim.tell("200");
    let second = meter.read(start + Duration::from_secs(1), &[victim.pid()]);
    let seen = second.of_main().unwrap();
    assert_eq!(seen.count.seen().copied(), said["count"].as_u64());
    let Observation::Seen(classes) = &seen.classes else {
        panic!("{seen:?}")
    };
    assert!(classes.contains(&(Class::Eventfd, 200)), "{classes:?}");
}

#[test]
fn the_table_size_is_enough_until_a_level_could_be_reached() {
    let probe = Probe::new().unwrap();
    let mut victim = leaker(2048);
    let start = Instant::now();
    let mut meter = Meter::new(&probe, &budgets(&["highest=900:1000"]), start);
    let mut highest = |at: u64, victim: &Victim| {
        let reading = meter.read(start + Duration::from_secs(at), &[victim.pid()]);
        reading.of_main().unwrap().highest.clone()
    };
    assert!(matches!(highest(0, &victim), HighestFd::AtMost(slots) if slots < 900));
    let said = victim.tell("950");
    assert_eq!(
        HighestFd::Is(said["highest"].as_u64().unwrap()),
        highest(1, &victim)
    );
}

/// A burst is not a reason to act; at the limit there is no waiting.
#[test]
fn r29_a_leak_is_warned_of_and_acted_on_before_the_wall() {
    let probe = Probe::new().unwrap();
    let mut victim = leaker(256);
    let budgets = defaults();
    let start = Instant::now();
    let mut meter = Meter::new(&probe, &budgets, start);
    let mut memory = BudgetHistory::default();
    let (mut told, mut at) = (Vec::new(), Duration::ZERO);
    for _ in 0..60 {
        let said = victim.tell("5");
        assert_eq!(
            said["error"],
            serde_json::Value::Null,
            "it ran into the wall first: {told:?}"
        );
        let reading = meter.read(start + at, &[victim.pid()]);
        let news = judge(&budgets, &reading, &mut memory);
        told.extend(news.into_iter().map(|one| one.kind));
        if matches!(told.last(), Some(Kind::Act(_))) {
            break;
        }
        // Five more in a tenth of a second are fifty a second.
        at += Duration::from_millis(100);
    }
    assert!(
        matches!(told.as_slice(), [Kind::Warn(_), Kind::Act(_)]),
        "{told:?}"
    );
    let leaks = meter.leaks();
    assert_eq!(leaks[0].class, Some(Class::Eventfd), "{leaks:?}");
    assert!(leaks[0].count >= 50, "{leaks:?}");
}

#[test]
fn another_program_in_the_place_begins_anew() {
    let probe = Probe::new().unwrap();
    let (first, second) = (leaker(64), leaker(64));
    let start = Instant::now();
    let mut meter = Meter::new(&probe, &budgets(&["wall=1h:1m"]), start);
    for second in 0..50 {
        meter.read(start + Duration::from_secs(second), &[first.pid()]);
    }
    assert!(meter.trend.growth().seen().is_some());
    let reading = meter.read(start + Duration::from_secs(51), &[second.pid()]);
    assert_eq!(reading.growth, Observation::NotYet);
}

#[test]
fn who_ended_is_not_among_them_and_zombies_are_counted() {
    let probe = Probe::new().unwrap();
    let start = Instant::now();
    let mut meter = Meter::new(&probe, &budgets(&["zombies=1:9", "memory=1GiB"]), start);
    let mut child = Command::new("true").spawn().unwrap();
    // It has exited when its output is at its end; it is not waited for, so it is a zombie of the
    // test.
    let pid = rustix::process::Pid::from_child(&child);
    let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(pid), options).unwrap();
    let own = std::process::id();
    let reading = meter.read(start, &[own, child.id()]);
    assert_eq!(reading.processes.len(), 1);
    assert_eq!(
        (reading.children, reading.zombies),
        (0, Observation::Seen(1))
    );
    let Observation::Seen(memory) = reading.memory else {
        panic!("memory")
    };
    assert!(memory.exact && memory.bytes > 100_000);
    child.wait().unwrap();
    let later = meter.read(start + Duration::from_secs(10), &[own]);
    assert_eq!(later.zombies, Observation::Seen(0));
}

#[test]
fn memory_that_is_shared_is_counted_once_when_it_matters() {
    let probe = Probe::new().unwrap();
    let (one, other) = (leaker(64), leaker(64));
    let start = Instant::now();
    let pids = [one.pid(), other.pid()];
    let mut low = Meter::new(&probe, &budgets(&["memory=1KiB:2KiB"]), start);
    let mut high = Meter::new(&probe, &budgets(&["memory=1GiB:2GiB"]), start);
    let (exact, most) = (
        low.read(start, &pids).memory,
        high.read(start, &pids).memory,
    );
    let (Observation::Seen(exact), Observation::Seen(most)) = (exact, most) else {
        panic!("memory")
    };
    assert!(exact.exact && !most.exact);
    assert!(exact.bytes < most.bytes, "{exact:?} {most:?}");
}

#[test]
fn connections_to_a_listener_are_counted_and_others_are_not() {
    let probe = Probe::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = TcpStream::connect(address).unwrap();
    let (served, _) = listener.accept().unwrap();
    let meter = Meter::new(&probe, &defaults(), Instant::now());
    let own = [std::process::id()];
    // The client's end is here, too, but its port has no listener.
    let port = address.port();
    assert_eq!(meter.connections(&own, &[port]), Some(1));
    assert_eq!(meter.connections(&own, &[]), Some(1));
    drop(client);
    drop(served);
    assert_eq!(meter.connections(&own, &[]), Some(0));
}

#[test]
fn without_a_change_there_is_time_until_the_next_look() {
    let probe = Probe::new().unwrap();
    let victim = leaker(1024);
    let start = Instant::now();
    let mut meter = Meter::new(&probe, &defaults(), start);
    assert!(meter.poll(start, &[victim.pid()]).is_some());
    assert!(
        meter
            .poll(start + Duration::from_millis(200), &[victim.pid()])
            .is_none(),
        "young: every 250 ms"
    );
    assert!(
        meter
            .poll(start + Duration::from_secs(7), &[victim.pid()])
            .is_some()
    );
    assert!(
        meter
            .poll(start + Duration::from_millis(7900), &[victim.pid()])
            .is_none(),
        "at rest: every second"
    );
    assert!(
        meter
            .poll(start + Duration::from_millis(8000), &[victim.pid()])
            .is_some()
    );
}

#[test]
fn r33_connections_that_the_peer_has_closed_are_warned_of() {
    let probe = Probe::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut served = Vec::new();
    for _ in 0..110 {
        let client = TcpStream::connect(address).unwrap();
        served.push(listener.accept().unwrap().0);
        drop(client);
    }
    for stream in &served {
        // The end of the stream has arrived: from here on it is in CLOSE_WAIT.
        assert_eq!(stream.peek(&mut [0]).unwrap(), 0);
    }
    let budgets = budgets(&["fds=off"]);
    let start = Instant::now();
    let mut meter = Meter::new(&probe, &budgets, start);
    let mut memory = BudgetHistory::default();
    let reading = meter.read(start, &[std::process::id()]);
    let news = judge(&budgets, &reading, &mut memory);
    let [one] = news.as_slice() else {
        panic!("{news:?}")
    };
    assert_eq!(one.what.to_string(), "class:tcp:CLOSE_WAIT");
    assert!(
        matches!(&one.kind, Kind::Warn(passed) if passed.value == 110.0),
        "{one:?}"
    );
    served.truncate(50);
    let later = meter.read(start + Duration::from_secs(10), &[std::process::id()]);
    let news = judge(&budgets, &later, &mut memory);
    assert!(
        matches!(&news[..], [one] if matches!(one.kind, Kind::Cleared(_))),
        "{news:?}"
    );
}
