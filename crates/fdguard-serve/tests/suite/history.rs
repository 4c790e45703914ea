//! What is kept, and what survives.

use std::time::Duration;

use fdguard_serve::history_record::HistoryEvent;
use fdguard_serve::{read_history, read_services};
use testkit::Victim;

use super::harness::{Server, command, leaker};

#[test]
fn the_history_names_the_restart_after_which_growth_began() {
    let server = Server::start();
    let quiet = Victim::start("crosser");
    server.ticks(10);
    quiet.finish();
    let mut leaking = leaker().nofile(4000).start();
    for _ in 0..60 {
        leaking.tell("2 file");
        server.ticks(1);
    }
    let pid = leaking.pid();
    // On a busy machine the server may have looked only a few times.
    server.wait("a finding", |overview| {
        leaking.tell("1 file");
        super::harness::finding(overview, pid, "leak")
    });
    // What was listed is kept with the next sample, which comes every other tick.
    server.wait("a long list of files", |overview| {
        let watched = super::harness::watched(overview, pid)?;
        let classes = watched["classes"].as_array()?.iter();
        let mut files = classes.filter(|class| class["class"] == "regular");
        files
            .any(|class| class["count"].as_u64() > Some(20))
            .then_some(())
    });
    server.ticks(4);
    leaking.finish();
    let state = server.stop();
    let path = state.path().join("history.db");
    let names: Vec<String> = read_services(&path)
        .unwrap()
        .into_iter()
        .map(|it| it.name)
        .collect();
    assert!(names.contains(&command()) && names.contains(&"crosser".to_owned()));
    let history = &read_history(&path, &command(), None).unwrap()[0];
    let onset = history.onset.as_ref().expect("the beginning of the growth");
    assert!(onset.to > onset.from + 50, "{onset:?}");
    assert_eq!(onset.after.as_ref().unwrap().event, "appeared");
    let opened = history
        .events
        .iter()
        .find(|event| event.event == "opened")
        .unwrap();
    assert_eq!(opened.finding.as_ref().unwrap().rule, "leak");
    let has_classes = |sample: &fdguard_serve::history_record::HistorySample| {
        let classes = sample.classes.as_deref().unwrap_or_default();
        classes
            .iter()
            .any(|class| class.class == "regular" && class.count > 20)
    };
    assert!(history.samples.iter().any(has_classes));
}

#[test]
fn a_damaged_history_is_set_aside_and_serving_goes_on() {
    let state = tempfile::tempdir().unwrap();
    let path = state.path().join("history.db");
    std::fs::write(&path, vec![b'x'; 8192]).unwrap();
    let server = Server::in_dir(state, |_| {});
    server.ticks(3);
    let aside = server
        .log()
        .into_iter()
        .find(|line| line.contains("event=history_set_aside"));
    assert!(aside.is_some_and(|line| line.contains("history.db.damaged-")));
    assert_eq!(
        server.json("/healthz")["history"]["error"],
        serde_json::Value::Null
    );
}

#[test]
fn a_history_that_cannot_be_opened_is_an_error_and_not_silence() {
    let state = tempfile::tempdir().unwrap();
    let mut options = super::harness::options(state.path());
    if let Some(history) = &mut options.history {
        history.path = state.path().join("missing/history.db");
    }
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sink = std::sync::Arc::new(|_: &fdguard_core::log_event::LogEvent| {});
    let started = fdguard_serve::Serving::start(
        options,
        super::harness::settings(),
        vec![socket.into()],
        sink,
    );
    let error = started.unwrap_err().to_string();
    assert!(
        error.starts_with("history: ") && error.contains("missing"),
        "{error}"
    );
}

#[test]
fn without_a_history_everything_else_works() {
    let server = Server::with(|options| {
        options.history = None;
        options.sample_every = Duration::from_millis(1);
    });
    server.ticks(3);
    let health = server.json("/healthz");
    assert_eq!(health["history"]["enabled"], false);
    assert!(!server.state.path().join("history.db").exists());
}

#[test]
fn the_targets_of_two_moments_can_be_compared() {
    let server = Server::start();
    let mut leaking = leaker().nofile(4000).start();
    let pid = leaking.pid();
    let listed = |overview: &serde_json::Value| {
        let watched = super::harness::watched(overview, pid)?;
        watched["classes"].is_array().then_some(())
    };
    for _ in 0..20 {
        leaking.tell("2 file");
        server.ticks(1);
    }
    server.wait("a listing", listed);
    let query = |at: &str| format!("/api/v1/moment?kind=command&name={}&at={at}", command());
    let regular = |moment: &serde_json::Value| -> Option<u64> {
        let targets = moment["targets"].as_array()?;
        let files = targets.iter().filter(|row| row["class"] == "regular");
        Some(files.filter_map(|row| row["count"].as_u64()).sum())
    };
    let kept = |at: &str, least: u64| {
        testkit::wait_for("a kept moment with targets", || {
            let moment = server.json(&query(at));
            (regular(&moment)? >= least).then_some(moment)
        })
    };
    let first = kept("9999-01-01T00:00:00Z", 20);
    let then = first["at"].as_str().unwrap().to_owned();
    let before = regular(&first).unwrap();
    for _ in 0..20 {
        leaking.tell("2 file");
        server.ticks(1);
    }
    let second = kept("9999-01-01T00:00:00Z", before + 20);
    assert!(second["open_fds"].as_u64() > first["open_fds"].as_u64());
    // The earlier moment is still what it was.
    assert_eq!(server.json(&query(&then)), first);
    let (status, _, body) = server.request(
        &format!("GET {}", query("1999-01-01T00:00:00Z")),
        Some(super::harness::VIEW),
        "",
    );
    assert_eq!(status, 404, "{body}");
    assert!(body.contains("nothing is kept"), "{body}");
    leaking.finish();
}

/// What happened to the processes of a service.
fn runs_of(state: &std::path::Path, name: &str) -> Vec<HistoryEvent> {
    let mut history = read_history(&state.join("history.db"), name, None).unwrap();
    let mut events = history.remove(0).events;
    events.retain(|one| matches!(one.event.as_str(), "appeared" | "restarted" | "stopped"));
    events
}

fn words(events: &[HistoryEvent]) -> Vec<&str> {
    events.iter().map(|one| one.event.as_str()).collect()
}

#[test]
fn a_start_of_fdguard_serve_is_no_restart_of_a_service() {
    let victim = leaker().start();
    let server = Server::start();
    server.ticks(5);
    let server = Server::in_dir(server.stop(), |_| {});
    server.ticks(5);
    let state = server.stop();
    assert_eq!(words(&runs_of(state.path(), &command())), ["appeared"]);
    victim.finish();
}

#[test]
fn a_deploy_while_fdguard_serve_did_not_run_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("dp{}", std::process::id());
    let program = dir.path().join(&name);
    let deploy = || {
        let new = dir.path().join("new");
        std::fs::copy(testkit::victim_path("leaker"), &new).unwrap();
        std::fs::rename(new, &program).unwrap();
        testkit::VictimLaunch::program(&program).start()
    };
    let old = deploy();
    let server = Server::start();
    server.ticks(5);
    let state = server.stop();
    old.finish();
    let new = deploy();
    let server = Server::in_dir(state, |_| {});
    server.ticks(5);
    let state = server.stop();
    let events = runs_of(state.path(), &name);
    assert_eq!(words(&events), ["appeared", "restarted"]);
    assert_eq!(events[1].deploy, Some(true));
    assert!(
        events[1].text.contains("while fdguard serve did not run"),
        "{}",
        events[1].text
    );
    new.finish();
}
