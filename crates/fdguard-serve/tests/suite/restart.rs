//! A server that is started again goes on with what it had found.

use std::time::Duration;

use serde_json::Value;

use super::harness::{Server, finding, leaker};

/// The rule of a process that uses most of its limit.
fn near_limit(overview: &Value, pid: u32) -> Option<Value> {
    let all = overview["findings"].as_array()?;
    let found = all.iter().find(|one| one["finding"]["pid"] == pid)?;
    finding(overview, pid, found["rule"].as_str()?)
}

fn told(server: &Server, event: &str, id: &Value) -> bool {
    let event = format!("event={event} ");
    let number = format!(" finding={id} ");
    let lines = server.log();
    let mut lines = lines.iter();
    lines.any(|line| line.contains(&event) && line.contains(&number))
}

/// As the history has it.
fn milliseconds(time: &Value) -> i64 {
    let time: jiff::Timestamp = time.as_str().unwrap().parse().unwrap();
    time.as_millisecond()
}

#[test]
fn an_open_finding_keeps_its_number_and_is_not_told_again() {
    let server = Server::start();
    let mut victim = leaker().nofile(100).start();
    victim.tell("90 file");
    let pid = victim.pid();
    let first = server.wait("the finding", |overview| near_limit(overview, pid));
    assert!(told(&server, "finding_opened", &first["id"]));
    let server = Server::in_dir(server.stop(), |_| {});
    let again = server.wait("the finding", |overview| {
        // Seen by this server, not only remembered.
        near_limit(overview, pid).filter(|one| one["seen_at"] != first["seen_at"])
    });
    for field in ["id", "state", "rule", "class", "flaps"] {
        assert_eq!(again[field], first[field], "{field}");
    }
    assert_eq!(
        milliseconds(&again["opened_at"]),
        milliseconds(&first["opened_at"])
    );
    server.ticks(5);
    let log = server.log();
    let about = format!(" pid={pid} ");
    let opened = |line: &&String| line.contains("event=finding_") && line.contains(&about);
    assert_eq!(log.iter().find(opened), None);
    assert!(
        log.iter()
            .any(|line| line.contains("event=findings_restored"))
    );
    // And its end is told.
    victim.finish();
    testkit::wait_until("the resolution", || {
        told(&server, "finding_resolved", &first["id"])
    });
}

#[test]
fn a_finding_whose_process_ended_meanwhile_resolves() {
    let quick = Duration::from_millis(400);
    let server = Server::start();
    let mut victim = leaker().nofile(100).start();
    victim.tell("90 file");
    let pid = victim.pid();
    let first = server.wait("the finding", |overview| near_limit(overview, pid));
    let state = server.stop();
    victim.finish();
    let server = Server::in_dir(state, |options| options.resolve_after = quick);
    let over = server.wait("its end", |overview| {
        near_limit(overview, pid).filter(|one| one["state"] == "resolved")
    });
    assert_eq!(over["id"], first["id"]);
    assert!(told(&server, "finding_resolved", &first["id"]));
    // The next start knows that it is over.
    let server = Server::in_dir(server.stop(), |_| {});
    let over = server.wait("what is over", |overview| near_limit(overview, pid));
    assert_eq!(
        (&over["id"], &over["state"]),
        (&first["id"], &"resolved".into())
    );
    assert!(!told(&server, "finding_resolved", &first["id"]));
}
