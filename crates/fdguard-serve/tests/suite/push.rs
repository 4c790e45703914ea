//! Metrics over OTLP, read by the official protocol buffers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use fdguard_serve::ReceiverUrl;
use serde_json::Value;
use testkit::{TestCgroup, Victim};

use super::harness::{Server, command, leaker};

/// Decodes a request and prints what the test needs.
const DECODE: &str = r#"
import json, sys
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
request = ExportMetricsServiceRequest.FromString(sys.stdin.buffer.read())
value = lambda any: getattr(any, any.WhichOneof("value"))
pairs = lambda list: {one.key: value(one.value) for one in list}
out = []
for resource in request.resource_metrics:
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            data = getattr(metric, metric.WhichOneof("data"))
            for point in data.data_points:
                out.append({"resource": pairs(resource.resource.attributes), "name": metric.name,
                    "unit": metric.unit, "kind": metric.WhichOneof("data"), "time": point.time_unix_nano,
                    "monotonic": getattr(data, "is_monotonic", None),
                    "value": point.as_double if point.WhichOneof("value") else None,
                    "start": point.start_time_unix_nano, "ended": bool(point.flags & 1), "attributes": pairs(point.attributes), "scope": scope.scope.name})
print(json.dumps(out))
"#;

/// The first request to an address: its head and its body.
fn receive(socket: &TcpListener) -> (String, Vec<u8>) {
    let (mut stream, _) = socket.accept().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line == "\r\n" {
            break;
        }
        head.push_str(&line.to_lowercase());
    }
    let length = head.split("content-length: ").nth(1).unwrap();
    let length = length.lines().next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    (head, body)
}

#[test]
fn otlp_has_the_names_of_the_semantic_conventions() {
    let Some(python) = testkit::software("venv/bin/python") else {
        return;
    };
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    // Without a path, as collectors write their addresses.
    let url = format!("http://{}", socket.local_addr().unwrap());
    let server = Server::with(|options| {
        options.push.otlp = Some(ReceiverUrl::parse(&url).unwrap());
        options.push.every = Duration::from_millis(100);
    });
    let victim = leaker().start();
    let (sender, received) = channel();
    std::thread::spawn(move || while sender.send(receive(&socket)).is_ok() {});
    let points = testkit::wait_for("the victim's points", || {
        let (head, body) = received.recv().unwrap();
        assert!(head.starts_with("post /v1/metrics http/1.1"), "{head}");
        assert!(
            head.contains("content-type: application/x-protobuf"),
            "{head}"
        );
        let points = decode(&python, &body);
        let is_own = |point: &Value| point["resource"]["service.name"] == command().as_str();
        points.iter().any(is_own).then_some(points)
    });
    let own = |name: &str| {
        let is_it = |point: &&Value| {
            point["resource"]["service.name"] == command().as_str() && point["name"] == name
        };
        points
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("no {name}"))
            .clone()
    };
    let count = own("process.unix.file_descriptor.count");
    assert_eq!(
        (&count["kind"], &count["monotonic"], &count["unit"]),
        (&"sum".into(), &false.into(), &"{file_descriptor}".into())
    );
    assert!(count["value"].as_f64().unwrap() >= 3.0, "{count}");
    assert_eq!(count["resource"]["host.name"], "test-host");
    assert_eq!(count["resource"]["process.command"], command());
    assert_eq!(count["scope"], "fdguard");
    assert_eq!(own("fdguard.fd_usage_ratio")["kind"], "gauge");
    let restarts = own("fdguard.restarts");
    assert_eq!(
        (&restarts["kind"], &restarts["monotonic"]),
        (&"sum".into(), &true.into())
    );
    assert_units_and_times(&points);
    victim.finish();
    let ended = testkit::wait_for("the end of the victim's series", || {
        let points = decode(&python, &received.recv().unwrap().1).into_iter();
        let mut own = points.filter(|point| point["resource"]["service.name"] == command());
        own.find(|point| point["ended"] == true)
    });
    assert!(ended["value"].is_null(), "{ended}");
    drop(server);
}

/// Every point has the unit of its name, a sum since its start, and a value.
fn assert_units_and_times(points: &[Value]) {
    for point in points {
        let name = point["name"].as_str().unwrap();
        let unit = UNITS.iter().find(|(known, _)| *known == name);
        assert_eq!(
            point["unit"],
            unit.unwrap_or_else(|| panic!("{name}")).1,
            "{name}"
        );
        let (start, time) = (&point["start"], &point["time"]);
        let is_since_a_time = start.as_u64() > Some(0) && start.as_u64() <= time.as_u64();
        assert_eq!(is_since_a_time, point["kind"] == "sum", "{point}");
        assert_eq!(
            (&point["ended"], point["value"].is_f64()),
            (&false.into(), true),
            "{point}"
        );
    }
}

/// Names and their units; every name that a push can have on a quiet host is here.
const UNITS: [(&str, &str); 39] = [
    ("process.unix.file_descriptor.count", "{file_descriptor}"),
    ("fdguard.fd_limit", "{file_descriptor}"),
    ("fdguard.fd_usage_ratio", "1"),
    ("fdguard.fd_growth_per_second", "{file_descriptor}/s"),
    ("fdguard.verdict", "1"),
    ("fdguard.top_open_fds", "{file_descriptor}"),
    ("fdguard.top_fd_usage_ratio", "1"),
    ("fdguard.top_fd_growth_per_second", "{file_descriptor}/s"),
    ("fdguard.top_verdict", "1"),
    ("fdguard.processes", "{process}"),
    ("fdguard.restarts", "{restart}"),
    ("fdguard.fds", "{file_descriptor}"),
    ("fdguard.seconds_to_limit", "s"),
    ("fdguard.findings", "{finding}"),
    ("fdguard.process_open_fds", "{file_descriptor}"),
    ("fdguard.process_fd_limit", "{file_descriptor}"),
    ("fdguard.process_verdict", "1"),
    ("fdguard.folded_services", "{service}"),
    ("fdguard.folded_processes", "{process}"),
    ("fdguard.folded_findings", "{finding}"),
    ("fdguard.serve_cpu_seconds", "s"),
    ("fdguard.serve_children_cpu_seconds", "s"),
    ("fdguard.serve_tick_seconds", "s"),
    ("fdguard.serve_tick_cpu_seconds", "s"),
    ("fdguard.serve_ticks", "{tick}"),
    ("fdguard.serve_late_ticks", "{tick}"),
    ("fdguard.serve_open_fds", "{file_descriptor}"),
    ("fdguard.serve_resident_memory_bytes", "By"),
    ("fdguard.serve_watched_processes", "{process}"),
    ("fdguard.serve_unwatched_processes", "{process}"),
    ("fdguard.serve_deferred_looks", "{look}"),
    ("fdguard.serve_dropped_findings", "{finding}"),
    ("fdguard.serve_history_bytes", "By"),
    ("fdguard.serve_history_lost_rows", "{row}"),
    ("fdguard.serve_deliveries", "{message}"),
    ("fdguard.serve_delivery_failures", "{attempt}"),
    ("fdguard.serve_dropped_deliveries", "{message}"),
    ("fdguard.visible_processes", "{process}"),
    ("fdguard.gaps", "{gap}"),
];

#[test]
fn otlp_has_the_id_of_a_container() {
    let Some(python) = testkit::software("venv/bin/python") else {
        return;
    };
    // Its first twelve digits are the name of the service.
    let id = format!("{:012x}{:052x}", std::process::id(), 0);
    let group = TestCgroup::create(&format!("docker/{id}")).filter(|_| testkit::is_root());
    let Some(group) = group else {
        return testkit::skip("needs root and a cgroup that can be created");
    };
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/metrics", socket.local_addr().unwrap());
    let victims = [leaker().start(), leaker().start()];
    for victim in &victims {
        group.add(victim.pid());
    }
    let server = Server::with(|options| {
        options.push.otlp = Some(ReceiverUrl::parse(&url).unwrap());
        options.push.every = Duration::from_millis(100);
    });
    let (sender, received) = channel();
    std::thread::spawn(move || while sender.send(receive(&socket)).is_ok() {});
    let resource = testkit::wait_for("the container", || {
        let (_, body) = received.recv().unwrap();
        let points = decode(&python, &body).into_iter();
        let mut resources = points.map(|point| point["resource"].clone());
        resources.find(|resource| resource["container.id"] == id.as_str())
    });
    assert_eq!(resource["fdguard.service.kind"], "container");
    assert_eq!(
        resource["container.name"],
        id[..12],
        "no runtime knows its name"
    );
    victims.into_iter().for_each(Victim::finish);
    drop(server);
}

fn decode(python: &std::path::Path, body: &[u8]) -> Vec<Value> {
    let mut child = Command::new(python)
        .args(["-c", DECODE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}
