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
    // A look may have come while the victim opened them: then the finding was a warning first.
    let first = server.wait("the finding about all of them", |overview| {
        near_limit(overview, pid).filter(|one| one["finding"]["severity"] == "critical")
    });
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

#[test]
fn a_finding_that_is_long_over_is_read_from_the_history() {
    let server = Server::start();
    server.ticks(2);
    let state = server.stop();
    let history = rusqlite::Connection::open(state.path().join("history.db")).unwrap();
    let day = jiff::Timestamp::now().as_millisecond() - 3 * 86_400_000;
    history
        .execute_batch(&format!(
            "INSERT INTO service VALUES (900, 'unit', 'old.service');
             INSERT INTO event (service, at, event, text, finding) VALUES
             (900, {day}, 'opened', 'it leaks', '{OLD}'),
             (900, {day} + 60000, 'resolved', 'it leaks', '{OLD}');
             INSERT INTO attachment VALUES (990, {day}, '/state/evidence/old.tar.zst', NULL);"
        ))
        .unwrap();
    drop(history);
    let server = Server::in_dir(state, |options| {
        options.history.as_mut().unwrap().keep = Duration::from_secs(7 * 86_400);
    });
    server.ticks(1);
    let old = |query: &str| {
        let document = server.json(&format!("/api/v1/findings?{query}"));
        let all = document["findings"].as_array().unwrap().iter();
        let mut old = all.filter(|one| one["id"] == 990);
        old.next().cloned()
    };
    assert_eq!(old("state=resolved"), None);
    let found = old("state=resolved&older=true").unwrap();
    assert_eq!(found["service"]["name"], "old.service");
    assert_eq!(found["evidence"], "/state/evidence/old.tar.zst");
    assert_eq!(old("state=open&older=true"), None);
}

const OLD: &str = r#"{"id":990,"rule":"leak","severity":"warning","class":"pipe","target":null,
    "pid":7,"comm":"old","count":40}"#;

#[test]
fn a_service_with_an_open_finding_is_shown_after_its_end() {
    let server = Server::with(|options| options.resolve_after = Duration::from_secs(600));
    let mut victim = leaker().nofile(100).start();
    victim.tell("90 file");
    let pid = victim.pid();
    let open = server.wait("the finding", |overview| near_limit(overview, pid));
    victim.finish();
    let ended = server.wait("the service without processes", |overview| {
        let services = overview["services"].as_array()?.iter();
        let mut services = services.filter(|one| one["name"] == super::harness::command());
        services.find(|one| one["processes"] == 0).cloned()
    });
    assert!(ended["findings"].as_array().unwrap().contains(&open["id"]));
    assert_eq!(ended["open_fds"], Value::Null);
    // A start that never saw it run shows it, too.
    let server = Server::in_dir(server.stop(), |options| {
        options.resolve_after = Duration::from_secs(600);
    });
    server.wait("the service after a start", |overview| {
        let mut services = overview["services"].as_array()?.iter();
        services
            .any(|one| one["findings"].as_array().unwrap().contains(&open["id"]))
            .then_some(())
    });
}

#[test]
fn every_process_is_listed_also_those_that_are_not_watched() {
    let server = Server::start();
    let victim = leaker().start();
    let name = super::harness::command();
    let path = format!("/api/v1/processes?q={name}&sort=count");
    let found = testkit::wait_for("the process", || {
        let document = server.json(&path);
        let found = document["processes"].as_array()?.first()?.clone();
        (document["matched"] == 1).then_some(found)
    });
    assert_eq!(found["pid"], victim.pid());
    assert_eq!(found["service"]["name"], name);
    assert_eq!(found["count"], victim.holdings().len());
    let few = server.json("/api/v1/processes?limit=1");
    assert_eq!(few["processes"].as_array().unwrap().len(), 1);
    assert!(few["matched"].as_u64().unwrap() > 1);
    victim.finish();
}

#[test]
fn a_process_has_a_growth_of_its_own() {
    let server = Server::start();
    let mut growing = leaker().start();
    let still = leaker().start();
    let path = format!(
        "/api/v1/processes?q={}&sort=growth",
        super::harness::command()
    );
    let (first, second) = testkit::wait_for("its growth", || {
        growing.tell("2 file");
        let document = server.json(&path);
        let processes = document["processes"].as_array()?;
        let [first, second] = &processes[..] else {
            return None;
        };
        let is_known = second["growth_per_second"].is_f64();
        let is_growing = first["growth_per_second"].as_f64()? > 0.0;
        (is_known && is_growing).then(|| (first.clone(), second.clone()))
    });
    assert_eq!(first["pid"], growing.pid());
    // Both are one service: its growth would be the same for both.
    assert_eq!(first["service"], second["service"]);
    assert_eq!(second["pid"], still.pid());
    assert_eq!(second["growth_per_second"], 0.0);
    let watched = server.wait("its watch", |overview| {
        super::harness::watched(overview, growing.pid())
    });
    assert!(
        watched["growth_per_second"].as_f64().unwrap() > 0.0,
        "{watched}"
    );
    growing.finish();
    still.finish();
}
