//! What leaks is found without being named; what does not leak is left alone.

use std::time::Duration;

use serde_json::Value;
use testkit::{Victim, VictimLaunch};

use super::harness::{Server, command, finding, leaker, watched};

/// Leaks with every tick until a finding about the victim is open.
fn leak_until_found(server: &Server, victim: &mut Victim, kind: &str) -> Value {
    for _ in 0..600 {
        victim.tell(kind);
        server.ticks(1);
        let overview = server.json("/api/v1/overview");
        if let Some(found) = finding(&overview, victim.pid(), "leak") {
            return found;
        }
    }
    panic!("not found: {}", server.json("/api/v1/overview"));
}

#[test]
fn a_leak_is_found_with_its_class_by_a_server_that_was_not_told() {
    for (kind, class) in [
        ("1 file", "regular"),
        ("1 pipe", "pipe"),
        ("2 eventfd", "eventfd"),
    ] {
        let server = Server::start();
        let mut victim = leaker().nofile(4000).start();
        let mut quiet = leaker().start();
        quiet.tell("30 file");
        server.ticks(3);
        let found = leak_until_found(&server, &mut victim, kind);
        assert_eq!(found["class"], class, "{found}");
        assert_eq!(
            (&found["state"], &found["service"]["name"]),
            (&"open".into(), &command().into())
        );
        let overview = server.json("/api/v1/overview");
        let view = watched(&overview, victim.pid()).unwrap();
        assert_eq!(
            (&view["verdict"], &view["has_findings"]),
            (&"leaking".into(), &true.into())
        );
        assert!(finding(&overview, quiet.pid(), "leak").is_none());
        let log = server.log();
        let opened = log.iter().find(|line| {
            line.contains("event=finding_opened")
                && line.contains("rule=leak ")
                && line.contains(&format!(" pid={} ", victim.pid()))
        });
        let opened = opened.expect("a line of the log");
        assert!(opened.contains(&format!("class={class}")), "{opened}");
        let metrics = server
            .request("GET /metrics", Some(super::harness::VIEW), "")
            .2;
        let name = command();
        let line = format!("fdguard_findings{{service=\"{name}\",kind=\"command\",rule=\"leak\"");
        assert!(metrics.contains(&line), "{metrics}");
        victim.finish();
        quiet.finish();
    }
}

#[test]
fn a_pool_that_breathes_is_no_leak() {
    let server = Server::start();
    let mut victim = leaker().start();
    for _ in 0..40 {
        victim.tell("20 file");
        server.ticks(1);
        victim.tell("-20");
        server.ticks(1);
    }
    let overview = server.json("/api/v1/overview");
    assert!(
        finding(&overview, victim.pid(), "leak").is_none(),
        "{overview}"
    );
    victim.finish();
}

#[test]
fn a_finding_resolves_when_its_process_is_gone_and_the_service_goes_on() {
    let server = Server::start();
    let mut victim = leaker().nofile(4000).start();
    server.ticks(2);
    let found = leak_until_found(&server, &mut victim, "2 file");
    let pid = victim.pid();
    victim.finish();
    let resolved = server.wait("the resolution", |overview| {
        finding(overview, pid, "leak").filter(|one| one["state"] == "resolved")
    });
    assert_eq!(resolved["id"], found["id"]);
    assert!(resolved["resolved_at"].is_string());
    assert!(
        server
            .log()
            .iter()
            .any(|line| line.contains("event=finding_resolved"))
    );
}

#[test]
fn near_its_limit_a_process_is_watched_although_it_does_not_grow() {
    let server = Server::start();
    let mut victim = leaker().nofile(100).start();
    victim.tell("90 file");
    let pid = victim.pid();
    let found = server.wait("a finding about the level", |overview| {
        let all = overview["findings"].as_array()?;
        all.iter().find(|one| one["finding"]["pid"] == pid).cloned()
    });
    assert_ne!(found["rule"], "leak");
    let view = watched(&server.json("/api/v1/overview"), pid).unwrap();
    assert_eq!(view["limits"]["soft"], 100);
    victim.finish();
}

#[test]
fn a_restart_continues_the_series_and_is_told() {
    let server = Server::start();
    let first = leaker().start();
    server.wait("the service", |overview| service(overview, &command()));
    server.ticks(5);
    first.finish();
    let second = leaker().start();
    let view = server.wait("the restart", |overview| {
        service(overview, &command()).filter(|view| view["restarts"] != 0)
    });
    assert_eq!(view["restarts"], 1);
    let event = format!("event=service_restarted service={} ", command());
    let line = server.log().into_iter().find(|line| line.contains(&event));
    let line = line.expect("a line of the log");
    assert!(line.contains("deploy=false"), "{line}");
    second.finish();
}

#[test]
fn a_program_that_was_replaced_between_two_runs_is_a_deploy() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join(command());
    // By `cp`: a file that this process has open for writing cannot be executed.
    let deploy = || {
        let next = dir.path().join("next");
        let from = testkit::victim_path("leaker");
        let copied = std::process::Command::new("cp")
            .arg(from)
            .arg(&next)
            .status();
        assert!(copied.unwrap().success());
        std::fs::rename(next, &program).unwrap();
        VictimLaunch::program(&program).start()
    };
    let first = deploy();
    server.wait("the service", |overview| service(overview, &command()));
    server.ticks(5);
    first.finish();
    let second = deploy();
    server.wait("the restart", |overview| {
        service(overview, &command()).filter(|view| view["restarts"] == 1)
    });
    let restarted = |server: &Server| {
        let event = format!("event=service_restarted service={} ", command());
        server.log().into_iter().find(|line| line.contains(&event))
    };
    let line = restarted(&server).expect("a line of the log");
    assert!(line.contains("deploy=true"), "{line}");
    second.finish();
    let state = server.stop();
    let history = fdguard_serve::read_history(&state.path().join("history.db"), &command(), None);
    let history = history.unwrap().remove(0);
    let mut events = history.events.iter();
    let restart = events.find(|event| event.event == "restarted").unwrap();
    assert_eq!(restart.deploy, Some(true));
    assert!(
        restart.text.ends_with("the program was replaced"),
        "{restart:?}"
    );
}

fn service(overview: &Value, name: &str) -> Option<Value> {
    let services = overview["services"].as_array()?;
    services.iter().find(|one| one["name"] == name).cloned()
}

#[test]
fn own_descriptors_stay_level_while_processes_come_and_go() {
    let server = Server::with(|options| options.every = Duration::from_millis(20));
    let own = |overview: &Value| overview["own"]["open_fds"].as_u64().unwrap();
    server.ticks(20);
    let before = own(&server.json("/api/v1/overview"));
    for _ in 0..40 {
        let children: Vec<_> = (0..5)
            .map(|_| {
                std::process::Command::new("sleep")
                    .arg("0.05")
                    .spawn()
                    .unwrap()
            })
            .collect();
        for mut child in children {
            child.wait().unwrap();
        }
    }
    server.ticks(20);
    let after = own(&server.json("/api/v1/overview"));
    // A few watched processes of this machine may have come.
    assert!(after <= before + 30, "{before} -> {after}");
}
