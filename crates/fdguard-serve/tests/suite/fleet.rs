//! The fleet over real Prometheus and VictoriaMetrics, and over servers that fail.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use fdguard_core::lint::Severity;
use fdguard_serve::fleet::{
    Fleet, FleetCheckOptions, FleetError, FleetOptions, FleetOrder, FleetSpread,
};
use fdguard_serve::{ExtraHeaders, ReceiverUrl};

use super::fleet_engine::{MetricEngine, post};
use super::harness::{Server, VIEW, command, leaker};

const CHECK: FleetCheckOptions = FleetCheckOptions {
    fail_on: Severity::Warning,
    max_usage: None,
    min_time_left: None,
};

fn fleet(url: &str, within: Duration) -> Fleet {
    Fleet::new(FleetOptions {
        from: ReceiverUrl::parse(url).unwrap(),
        token: None,
        headers: ExtraHeaders::default(),
        host_label: "instance".to_owned(),
        within,
    })
    .unwrap()
}

fn scraped() -> Server {
    Server::with(|options| options.web.public_metrics = true)
}

/// A victim that is near its limit, so that it has a finding.
fn suspect() -> testkit::Victim {
    let mut victim = leaker().nofile(60).start();
    victim.tell("54 file");
    victim
}

#[test]
fn prometheus_knows_a_service_on_every_host_that_it_scrapes() {
    let (first, second) = (scraped(), scraped());
    let Some(engine) = MetricEngine::prometheus(&[first.address, second.address]) else {
        return;
    };
    let victim = suspect();
    let fleet = fleet(&engine.url, Duration::from_secs(60));
    let service = testkit::wait_for("the service on both hosts", || {
        let service = fleet.service(&command()).ok()?;
        let is_found = service.rows.iter().all(|row| !row.findings.is_empty());
        (service.rows.len() == 2 && is_found).then_some(service)
    });
    let hosts: Vec<&str> = service.rows.iter().map(|row| row.host.as_str()).collect();
    let mut expected = [first.address.to_string(), second.address.to_string()];
    expected.sort();
    assert_eq!(hosts, expected);
    let row = &service.rows[0];
    assert_eq!((row.kind.as_str(), row.limit), ("command", Some(60)));
    assert!(row.open_fds.unwrap() >= 54, "{row:?}");
    let check = fleet.check(&CHECK).unwrap();
    assert_eq!(check.hosts, 2);
    let own = command();
    assert!(
        check.problems.iter().any(|one| one.service == own),
        "{check:?}"
    );
    let top = fleet.top(FleetOrder::Usage, 1000).unwrap();
    assert!(top.rows.iter().any(|one| one.service == own), "{top:?}");
    let shares: Vec<f64> = top.rows.iter().filter_map(|one| one.usage_ratio).collect();
    assert!(shares.len() > 1);
    // A host that does not answer any more is a gap, not a silence.
    drop(second);
    let check = testkit::wait_for("the silent host", || {
        fleet.check(&CHECK).ok().filter(|check| check.hosts == 1)
    });
    assert!(
        check.gaps[0].what.starts_with("1 host: "),
        "{:?}",
        check.gaps
    );
    victim.finish();
}

#[test]
fn hosts_that_push_to_victoria_metrics_are_compared() {
    let Some(engine) = MetricEngine::victoria() else {
        return;
    };
    let write = ReceiverUrl::parse(&format!("{}/api/v1/write", engine.url)).unwrap();
    let push = |host: &'static str| {
        let url = write.clone();
        Server::with(move |options| {
            options.host = host.to_owned();
            options.push.remote_write = Some(url);
            options.push.every = Duration::from_millis(200);
        })
    };
    let (_alpha, _beta) = (push("alpha"), push("beta"));
    let mut victim = leaker().start();
    let fleet = fleet(&engine.url, Duration::from_secs(60));
    let service = testkit::wait_for("growth on both hosts", || {
        victim.tell("5 file");
        let service = fleet.service(&command()).ok()?;
        (service.conclusion.spread == FleetSpread::AllHosts).then_some(service)
    });
    let hosts: Vec<&str> = service.rows.iter().map(|row| row.host.as_str()).collect();
    assert_eq!(hosts, ["alpha", "beta"]);
    assert!(
        service.conclusion.text.contains("all 2 hosts"),
        "{:?}",
        service.conclusion
    );
    victim.finish();
}

/// A host pushes a finding and its service, and their end. Both are gone at once: a value that is
/// only not repeated would stay for five minutes, which is longer than this waits.
fn what_ends_is_gone(engine: &MetricEngine) {
    // Without a path, as people write addresses.
    let url = ReceiverUrl::parse(&engine.url).unwrap();
    let _server = Server::with(move |options| {
        options.push.remote_write = Some(url);
        options.push.every = Duration::from_millis(200);
    });
    let victim = suspect();
    let fleet = fleet(&engine.url, Duration::from_secs(60));
    let own = command();
    let problems = || {
        let problems = fleet.check(&CHECK).ok()?.problems.into_iter();
        Some(problems.filter(|one| one.service == own).count())
    };
    testkit::wait_until("the finding", || problems().is_some_and(|count| count > 0));
    assert!(!fleet.service(&own).unwrap().rows.is_empty());
    victim.finish();
    testkit::wait_until("the end of the finding", || problems() == Some(0));
    testkit::wait_until("the end of the service", || {
        fleet
            .service(&own)
            .is_ok_and(|service| service.rows.is_empty())
    });
}

#[test]
fn a_finding_that_is_resolved_leaves_prometheus_at_once() {
    if let Some(engine) = MetricEngine::prometheus(&[]) {
        what_ends_is_gone(&engine);
    }
}

#[test]
fn a_finding_that_is_resolved_leaves_victoria_metrics_at_once() {
    if let Some(engine) = MetricEngine::victoria() {
        what_ends_is_gone(&engine);
    }
}

/// What a host with these services pushes; the first five are ranked, unless its fdguard is older.
fn usage_of(host: &str, shares: &[f64], is_old: bool) -> String {
    let mut lines = format!("fdguard_visible_processes{{instance=\"{host}\"}} 9\n");
    for (number, share) in shares.iter().enumerate() {
        let labels = format!("instance=\"{host}\",kind=\"unit\",service=\"s{number}\"");
        lines += &format!("fdguard_fd_usage_ratio{{{labels}}} {share}\n");
        if !is_old && number < 5 {
            lines += &format!("fdguard_top_fd_usage_ratio{{{labels}}} {share}\n");
        }
    }
    lines
}

#[test]
fn the_fullest_services_are_found_beyond_what_each_host_ranks() {
    let Some(engine) = MetricEngine::victoria() else {
        return;
    };
    testkit::wait_until("VictoriaMetrics", || {
        TcpStream::connect(engine.url.trim_start_matches("http://")).is_ok()
    });
    let full = [0.98, 0.97, 0.96, 0.95, 0.94, 0.93, 0.92];
    let pushed = [
        usage_of("full", &full, false),
        usage_of("calm", &[0.955, 0.1, 0.1, 0.1, 0.1, 0.1], false),
        usage_of("old", &[0.935, 0.2], true),
    ];
    post(&engine.url, "/api/v1/import/prometheus", &pushed.concat());
    post(&engine.url, "/internal/force_flush", "");
    let fleet = fleet(&engine.url, Duration::from_secs(60));
    let rows = testkit::wait_for("all three hosts", || {
        let top = fleet.top(FleetOrder::Usage, 8).ok()?;
        (top.hosts == 3).then_some(top.rows)
    });
    let found: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {}", row.host, row.usage_ratio.unwrap()))
        .collect();
    let expected = [
        "full 0.98",
        "full 0.97",
        "full 0.96",
        "calm 0.955",
        "full 0.95",
        "full 0.94",
        "old 0.935",
        "full 0.93",
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_page_gets_the_fleet() {
    let source = scraped();
    let Some(engine) = MetricEngine::prometheus(&[source.address]) else {
        return;
    };
    let from = ReceiverUrl::parse(&engine.url).unwrap();
    let server = Server::with(|options| {
        options.fleet = Some(FleetOptions {
            from,
            token: None,
            headers: ExtraHeaders::default(),
            host_label: "instance".to_owned(),
            within: Duration::from_secs(60),
        });
    });
    assert_eq!(server.json("/api/v1/overview")["fleet"], true);
    assert_eq!(source.json("/api/v1/overview")["fleet"], false);
    let fleet = testkit::wait_for("rows", || {
        let (status, _, body) = server.request("GET /api/v1/fleet", Some(VIEW), "");
        let body: serde_json::Value = serde_json::from_str(&body).ok()?;
        let has_rows = body["rows"].as_array().is_some_and(|rows| !rows.is_empty());
        (status == 200 && has_rows).then_some(body)
    });
    assert_eq!(fleet["schema"], "fdguard.fleet.top/1");
    assert_eq!(server.request("GET /api/v1/fleet", None, "").0, 401);
    assert_eq!(source.request("GET /api/v1/fleet", Some(VIEW), "").0, 404);
    drop(engine);
    let (status, _, body) = server.request("GET /api/v1/fleet", Some(VIEW), "");
    assert_eq!(status, 502, "{body}");
}

/// A server that answers every connection with these bytes, or never.
fn stub(answer: Option<&'static str>) -> String {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in socket.incoming().flatten() {
            let mut stream = stream;
            if let Some(answer) = answer {
                drop(stream.read(&mut [0; 4096]));
                drop(stream.write_all(answer.as_bytes()));
            } else {
                kept.push(stream);
            }
        }
    });
    url
}

#[test]
fn servers_that_are_down_slow_or_talk_nonsense_are_named() {
    let check = |url: &str| {
        let fleet = fleet(url, Duration::from_millis(500));
        fleet.check(&CHECK).unwrap_err()
    };
    let unused = TcpListener::bind("127.0.0.1:0").unwrap();
    let down = format!("http://{}", unused.local_addr().unwrap());
    drop(unused);
    assert!(matches!(check(&down), FleetError::Unreachable { .. }));
    let slow = check(&stub(None));
    assert!(
        matches!(&slow, FleetError::Unreachable { why, .. } if why.contains("0.5 s")),
        "{slow}"
    );
    let page = "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<html>hi</html>";
    assert!(matches!(
        check(&stub(Some(page))),
        FleetError::Nonsense { .. }
    ));
    let lost = "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
    assert!(matches!(
        check(&stub(Some(lost))),
        FleetError::Refused { .. }
    ));
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{\"status\":";
    assert!(matches!(
        check(&stub(Some(cut))),
        FleetError::Unreachable { .. }
    ));
    let empty = "HTTP/1.1 200 OK\r\nContent-Length: 63\r\n\r\n\
                 {\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[]}}";
    assert!(matches!(
        check(&stub(Some(empty))),
        FleetError::NoHosts { .. }
    ));
}
