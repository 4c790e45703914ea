//! `fdguard fleet` for cron and CI: what it exits with, over a server that answers as Prometheus
//! does, or as Mimir.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

use super::serve_options::read_request;
use super::{CommandOutput, run};

/// What the server knows.
#[derive(Clone, Default)]
struct StubFleet {
    /// Hosts that report now.
    now: &'static [&'static str],
    /// Hosts that reported within the last hour.
    before: &'static [&'static str],
    /// Whether a warning about web on the first host is open.
    has_finding: bool,
    /// Whether db on that host is full and runs out in two minutes.
    is_full: bool,
    /// What it says about its own answers.
    warnings: &'static [&'static str],
    /// The verdict on api on each host, as a number.
    verdicts: &'static [(&'static str, &'static str)],
    /// Whether it is a Mimir: below a path, and only for a tenant.
    is_mimir: bool,
}

impl StubFleet {
    /// Serves until the test ends; its address.
    fn serve(self) -> String {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let path = if self.is_mimir { "/prometheus" } else { "" };
        let url = format!("http://{}{path}", socket.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in socket.incoming().flatten() {
                self.answer(stream);
            }
        });
        url
    }

    fn answer(&self, mut stream: TcpStream) {
        let (head, query) = read_request(&stream);
        let query = String::from_utf8(query).unwrap();
        let is_meant = head.starts_with("post /prometheus/api/v1/query http/1.1\r\n");
        if self.is_mimir && !(is_meant && head.contains("x-scope-orgid: shop\r\n")) {
            let body = "no org id\n";
            let length = body.len();
            let head = format!("HTTP/1.1 401 Unauthorized\r\nContent-Length: {length}\r\n\r\n");
            return drop(stream.write_all(format!("{head}{body}").as_bytes()));
        }
        let data = json!({"resultType": "vector", "result": self.samples(&query)});
        let body = json!({"status": "success", "data": data, "warnings": self.warnings});
        let body = body.to_string();
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        drop(stream.write_all(format!("{head}{body}").as_bytes()));
    }

    fn samples(&self, query: &str) -> Vec<Value> {
        let sample = |metric: Value, value: &str| json!({"metric": metric, "value": [0, value]});
        let hosts = |names: &[&str]| {
            let names = names.iter();
            names
                .map(|name| sample(json!({"instance": name}), "1"))
                .collect()
        };
        let about = |service: &str, more: (&str, &str), value: &str| {
            let host = self.now[0];
            let mut metric = json!({"instance": host, "kind": "unit", "service": service});
            metric[more.0] = json!(more.1);
            metric["rule"] = json!("leak");
            vec![sample(metric, value)]
        };
        let is_about = |metric: &str| query.contains(metric);
        if query.starts_with("query=%7B__name__") {
            if !is_about("service%3D%22api%22") {
                return Vec::new();
            }
            let verdict = |(host, verdict): &(&str, &str)| {
                let metric = json!({"__name__": "fdguard_verdict", "instance": host,
                    "kind": "unit", "service": "api"});
                sample(metric, verdict)
            };
            self.verdicts.iter().map(verdict).collect()
        } else if is_about("last_over_time") {
            hosts(self.before)
        } else if is_about("fdguard_visible_processes") {
            hosts(self.now)
        } else if is_about("fdguard_findings") && is_about("warning") && self.has_finding {
            about("web", ("severity", "warning"), "2")
        } else if is_about("fdguard_fd_usage_ratio") && self.is_full {
            about("db", ("limit", "soft-limit"), "0.97")
        } else if is_about("fdguard_seconds_to_limit") && self.is_full {
            about("db", ("limit", "soft-limit"), "120")
        } else {
            Vec::new()
        }
    }
}

fn check(fleet: &StubFleet, more: &[&str]) -> CommandOutput {
    let url = fleet.clone().serve();
    run([&["fleet", "--from", &url, "check"], more].concat())
}

const ONE: StubFleet = StubFleet {
    now: &["a:9187"],
    before: &["a:9187"],
    has_finding: false,
    is_full: false,
    warnings: &[],
    verdicts: &[],
    is_mimir: false,
};

#[test]
fn a_fleet_without_problems_is_0() {
    let output = check(&ONE, &[]);
    assert_eq!((output.code, output.text()), (0, "0 problems on 1 host\n"));
    let limits = ["--max-usage", "90%", "--min-time-left", "1h"];
    assert_eq!(check(&ONE, &limits).code, 0);
}

#[test]
fn a_finding_of_the_severity_is_1() {
    let fleet = StubFleet {
        has_finding: true,
        ..ONE
    };
    let output = check(&fleet, &[]);
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert_eq!(
        output.text(),
        "a:9187  unit web  warning leak: 2 open\n1 problem on 1 host\n"
    );
    let document = check(&fleet, &["--json"]);
    assert_eq!(document.code, 1);
    let document = document.json();
    assert_eq!(document["schema"], "fdguard.fleet.check/1");
    assert_eq!(document["problems"][0]["service"], "web");
    assert_eq!(check(&fleet, &["--fail-on", "critical"]).code, 0);
}

#[test]
fn a_service_past_a_limit_that_was_given_is_1() {
    let fleet = StubFleet {
        is_full: true,
        ..ONE
    };
    assert_eq!(check(&fleet, &[]).code, 0, "no limit was given");
    let full = check(&fleet, &["--max-usage", "90%"]);
    assert_eq!(full.code, 1);
    assert!(full.text().contains("unit db  97.0 % of its limit is used"));
    let soon = check(&fleet, &["--min-time-left", "1h"]);
    assert_eq!(soon.code, 1);
    assert!(soon.text().contains(" to soft-limit\n"), "{}", soon.text());
}

#[test]
fn a_host_that_is_silent_is_3_unless_that_is_allowed_and_hides_no_problem() {
    let silent = StubFleet {
        before: &["a:9187", "b:9187"],
        ..ONE
    };
    let output = check(&silent, &[]);
    assert_eq!(output.code, 3, "{}", output.text());
    assert!(
        output.text().contains("gap: 1 host: b:9187: "),
        "{}",
        output.text()
    );
    let allowed = check(&silent, &["--allow-missing"]);
    assert_eq!(allowed.code, 0);
    assert!(
        allowed.text().contains("gap: 1 host: b:9187: "),
        "said all the same"
    );
    let both = StubFleet {
        has_finding: true,
        ..silent
    };
    assert_eq!(check(&both, &[]).code, 1);
    assert_eq!(check(&both, &["--allow-missing"]).code, 1);
}

#[test]
fn an_answer_that_is_not_complete_is_3() {
    let partial = StubFleet {
        warnings: &["one store is down"],
        ..ONE
    };
    let output = check(&partial, &[]);
    assert_eq!(output.code, 3);
    assert!(
        output.text().contains("one store is down"),
        "{}",
        output.text()
    );
    assert_eq!(check(&partial, &["--allow-missing"]).code, 0);
}

#[test]
fn a_server_without_hosts_is_3_and_no_result() {
    let output = check(&StubFleet::default(), &["--allow-missing"]);
    assert_eq!((output.code, output.text()), (3, ""));
    assert!(
        output.stderr.contains("has no metrics of fdguard serve"),
        "{}",
        output.stderr
    );
}

#[test]
fn a_mimir_is_asked_with_the_headers_of_a_file() {
    let mimir = StubFleet {
        is_mimir: true,
        ..ONE
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("headers");
    let check = |lines: &str| {
        std::fs::write(&file, lines).unwrap();
        check(&mimir, &["--header-file", file.to_str().unwrap()])
    };
    let output = check("# the tenant\nX-Scope-OrgID: shop\n");
    assert_eq!(
        (output.code, output.text()),
        (0, "0 problems on 1 host\n"),
        "{}",
        output.stderr
    );
    let other = check("X-Scope-OrgID: other\n");
    assert_eq!((other.code, other.text()), (3, ""));
    assert!(
        other.stderr.contains("refused the query: status 401"),
        "{}",
        other.stderr
    );
    let malformed = check("X-Scope-OrgID: shop\ns3cret\n");
    assert_eq!((malformed.code, malformed.text()), (2, ""));
    let mut lines = malformed.stderr.lines();
    let first = lines.next().unwrap();
    assert!(first.starts_with("fdguard: --header-file "), "{first}");
    assert!(first.ends_with(": line 2 is not Name: value"), "{first}");
    assert!(
        lines.next().unwrap().starts_with("hint: "),
        "{}",
        malformed.stderr
    );
    assert!(!malformed.stderr.contains("s3cret"), "{}", malformed.stderr);
}

#[test]
fn two_tokens_for_one_server_are_a_usage_error() {
    let dir = tempfile::tempdir().unwrap();
    let (headers, token) = (dir.path().join("headers"), dir.path().join("token"));
    std::fs::write(&headers, "Authorization: Bearer one\n").unwrap();
    std::fs::write(&token, "another\n").unwrap();
    let files = ["--header-file", headers.to_str().unwrap()];
    assert_eq!(check(&ONE, &files).code, 0);
    let both = [&files[..], &["--token-file", token.to_str().unwrap()]].concat();
    let output = check(&ONE, &both);
    assert_eq!((output.code, output.text()), (2, ""));
    assert!(
        output.stderr.contains("both are for Authorization"),
        "{}",
        output.stderr
    );
}

#[test]
fn a_service_that_grows_somewhere_is_1_with_a_conclusion() {
    let service = |fleet: &StubFleet, name: &str| {
        let url = fleet.clone().serve();
        run(["fleet", "--from", &url, "service", name])
    };
    let two = StubFleet {
        now: &["a:9187", "b:9187"],
        before: &["a:9187", "b:9187"],
        verdicts: &[("a:9187", "4"), ("b:9187", "1")],
        ..ONE
    };
    let output = service(&two, "api");
    assert_eq!(output.code, 1, "{}", output.stderr);
    let lines: Vec<&str> = output.text().lines().collect();
    assert_eq!(lines.len(), 4, "{}", output.text());
    assert!(lines[1].starts_with("a:9187  unit api") && lines[1].contains("leaking"));
    assert!(lines[2].starts_with("b:9187  unit api") && lines[2].contains("stable"));
    assert_eq!(
        lines[3],
        "It grows only on a:9187, and not on 1 other: suspect that machine, its load or its version."
    );
    let calm = StubFleet {
        verdicts: &[("a:9187", "1"), ("b:9187", "1")],
        ..two
    };
    let output = service(&calm, "api");
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(
        output.text().ends_with("\nIt grows on none of 2 hosts.\n"),
        "{}",
        output.text()
    );
    let missing = service(&calm, "no-such");
    assert_eq!((missing.code, missing.text()), (3, ""));
    let expected = "no host reports a service \"no-such\"";
    assert!(missing.stderr.contains(expected), "{}", missing.stderr);
}
