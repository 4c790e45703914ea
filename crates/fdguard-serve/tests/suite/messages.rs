//! Findings go to Alertmanager and to a webhook, also if these are away for a while.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use fdguard_serve::{EvidenceOptions, ReceiverUrl, WebhookSecret};
use serde_json::Value;
use testkit::Victim;

use super::harness::{Server, leaker};

/// A request that a receiver got.
struct Received {
    head: String,
    body: String,
}

/// A receiver that answers each request with the next status, the last one for ever.
fn receiver(statuses: &'static [u16]) -> (SocketAddr, Receiver<Received>) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for (at, stream) in socket.incoming().enumerate() {
            let Ok(mut stream) = stream else { continue };
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
                    length = value.trim().parse().unwrap();
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() {
                continue;
            }
            let status = statuses.get(at).or(statuses.last()).unwrap();
            drop(write!(
                stream,
                "HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n"
            ));
            let body = String::from_utf8(body).unwrap();
            if sender.send(Received { head, body }).is_err() {
                return;
            }
        }
    });
    (address, received)
}

/// A process near its limit.
fn suspect() -> Victim {
    let mut victim = leaker().nofile(60).start();
    victim.tell("54 file");
    victim
}

/// The next message about this process.
fn about(received: &Receiver<Received>, pid: u32) -> (Received, Value) {
    loop {
        let next = received
            .recv_timeout(Duration::from_secs(120))
            .expect("a message");
        let body: Value = serde_json::from_str(&next.body).unwrap();
        if next.body.contains(&pid.to_string()) {
            return (next, body);
        }
    }
}

/// The next message, about whatever process.
fn next(received: &Receiver<Received>) -> Received {
    received
        .recv_timeout(Duration::from_secs(120))
        .expect("a message")
}

/// The alert about this process, if a message has one.
fn alert(message: &Received, pid: u32) -> Option<Value> {
    let body: Value = serde_json::from_str(&message.body).unwrap();
    let text = pid.to_string();
    let mut alerts = body.as_array().unwrap().iter();
    let found = alerts.find(|one| one["annotations"]["pid"] == text.as_str());
    found.cloned()
}

#[test]
fn alertmanager_gets_an_alert_that_opens_and_ends_and_is_asked_again_after_a_failure() {
    let (address, received) = receiver(&[503, 200]);
    let url = ReceiverUrl::parse(&format!("http://{address}")).unwrap();
    let server = Server::with(|options| options.alertmanager = Some(url));
    let victim = suspect();
    let pid = victim.pid();
    // The server sees the whole machine: the first message may be about another test's victim.
    let (first, second) = (next(&received), next(&received));
    assert_eq!(first.body, second.body, "sent again after the failure");
    assert!(
        first.head.starts_with("POST /api/v2/alerts HTTP/1.1\r\n"),
        "{}",
        first.head
    );
    let head = first.head.to_lowercase();
    assert!(head.contains("content-type: application/json"), "{head}");
    let opened = alert(&second, pid).unwrap_or_else(|| {
        let mut messages = std::iter::repeat_with(|| next(&received));
        messages.find_map(|message| alert(&message, pid)).unwrap()
    });
    assert_eq!(opened["labels"]["alertname"], "FdguardFinding");
    assert_eq!(opened["labels"]["host"], "test-host");
    assert!(opened["startsAt"].is_string() && opened["endsAt"].is_string());
    let counts = server.wait("the failure in the counts", |overview| {
        let counts = &overview["own"]["deliveries"];
        (counts["sent"].as_u64()? >= 1 && counts["failed"].as_u64()? >= 1).then(|| counts.clone())
    });
    assert_eq!(counts["dropped"], 0);
    let is_logged = |line: &String| line.contains("event=delivery_failed to=alertmanager");
    assert!(server.log().iter().any(is_logged), "{:#?}", server.log());
    victim.finish();
    // The end arrives, too: an alert that ends no later than now.
    let ends =
        |alert: &Value| -> jiff::Timestamp { alert["endsAt"].as_str().unwrap().parse().unwrap() };
    let mut messages = std::iter::repeat_with(|| next(&received));
    let ended = messages.find_map(|message| {
        alert(&message, pid).filter(|alert| ends(alert) <= jiff::Timestamp::now())
    });
    assert!(ended.is_some());
}

#[test]
fn a_webhook_gets_a_signed_body() {
    let (address, received) = receiver(&[204]);
    let url = ReceiverUrl::parse(&format!("http://{address}/hook?x=1")).unwrap();
    let secret = b"a-secret-for-the-webhook";
    let server = Server::with(|options| {
        options.webhook = Some((url, WebhookSecret::new(secret).unwrap()));
    });
    let victim = suspect();
    let (message, body) = about(&received, victim.pid());
    assert!(
        message.head.starts_with("POST /hook?x=1 HTTP/1.1\r\n"),
        "{}",
        message.head
    );
    assert_eq!(body["schema"], "fdguard.serve.finding-event/1");
    assert_eq!(
        (&body["change"], &body["host"]),
        (&"opened".into(), &"test-host".into())
    );
    let header = |name: &str| {
        let mut lines = message.head.lines();
        let line = lines
            .find(|line| line.to_lowercase().starts_with(name))
            .unwrap();
        line.split_once(": ").unwrap().1.to_owned()
    };
    let (time, signature) = (header("x-fdguard-timestamp"), header("x-fdguard-signature"));
    // The receiver's side, in another implementation.
    let script = "import hmac,hashlib,sys; print(hmac.new(sys.argv[1].encode(), \
                  (sys.argv[2]+'.').encode()+sys.stdin.buffer.read(), hashlib.sha256).hexdigest())";
    let mut python = std::process::Command::new("python3")
        .args(["-c", script, std::str::from_utf8(secret).unwrap(), &time])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    python
        .stdin
        .take()
        .unwrap()
        .write_all(message.body.as_bytes())
        .unwrap();
    let output = python.wait_with_output().unwrap();
    let expected = String::from_utf8(output.stdout).unwrap();
    assert_eq!(signature, format!("sha256={}", expected.trim()));
    victim.finish();
    drop(server);
}

#[test]
fn a_receiver_that_never_answers_does_not_hold_up_the_loop() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = ReceiverUrl::parse(&format!("http://{}", socket.local_addr().unwrap())).unwrap();
    let server = Server::with(|options| options.alertmanager = Some(url));
    let victim = suspect();
    let pid = victim.pid();
    server.wait("a finding", |overview| {
        let all = overview["findings"].as_array()?;
        all.iter()
            .any(|one| one["finding"]["pid"] == pid)
            .then_some(())
    });
    server.ticks(20);
    let overview = server.json("/api/v1/overview");
    assert!(overview["own"]["tick_seconds"].as_f64().unwrap() < 20.0);
    victim.finish();
}

#[test]
fn a_critical_finding_leaves_evidence() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("doctor");
    std::fs::write(
        &program,
        "#!/bin/sh\nfor last; do :; done\necho \"$@\" > \"$last\"\n",
    )
    .unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let evidence = dir.path().join("evidence");
    let options = EvidenceOptions {
        program,
        dir: evidence.clone(),
    };
    let server = Server::with(|it| it.evidence = Some(options));
    let mut victim = leaker().nofile(60).start();
    victim.tell("57 file");
    let pid = victim.pid();
    let path = server.wait("evidence", |overview| {
        let all = overview["findings"].as_array()?;
        let mut all = all.iter().filter(|one| one["finding"]["pid"] == pid);
        all.find_map(|one| Some(one["evidence"].as_str()?.to_owned()))
    });
    assert!(path.starts_with(evidence.to_str().unwrap()));
    let text = std::fs::read_to_string(path).unwrap();
    assert!(
        text.starts_with(&format!("doctor {pid} --for 10s -o ")),
        "{text}"
    );
    victim.finish();
}
