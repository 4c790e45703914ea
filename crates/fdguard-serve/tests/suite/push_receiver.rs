//! Receivers of pushed metrics that want a header, hang or fail.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fdguard_serve::{ExtraHeaders, ReceiverUrl};

use super::harness::{PATIENCE, Server};

/// How a receiver treats a request.
#[derive(Clone, Copy, Debug)]
enum Treatment {
    /// Answers with this status.
    Answer(u16),
    /// Answers 200 to those who send the tenant, and 401 to others.
    AskTenant,
    /// Keeps the connection and never answers.
    Hang,
}

/// A receiver that treats each request as the next of these says, the last one for ever; the heads
/// of the requests.
fn receiver(treatments: &'static [Treatment]) -> (String, Receiver<String>) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let (sender, heads) = channel();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for (at, stream) in socket.incoming().flatten().enumerate() {
            let treatment = *treatments.get(at).or(treatments.last()).unwrap();
            kept.extend(treat(stream, treatment, &sender));
        }
    });
    (url, heads)
}

/// Returns the connection if it has to stay open.
fn treat(mut stream: TcpStream, treatment: Treatment, heads: &Sender<String>) -> Option<TcpStream> {
    let head = request(&stream);
    let has_tenant = head.contains("x-scope-orgid: shop\r\n");
    // The test may be over.
    drop(heads.send(head));
    let status = match treatment {
        Treatment::Hang => return Some(stream),
        Treatment::Answer(status) => status,
        Treatment::AskTenant if has_tenant => 200,
        Treatment::AskTenant => 401,
    };
    let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
    drop(stream.write_all(answer.as_bytes()));
    None
}

/// Reads a request and returns its head in lower case.
fn request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        line.make_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    drop(reader.read_exact(&mut vec![0; length]));
    head
}

fn address(url: &str, path: &str) -> Option<ReceiverUrl> {
    Some(ReceiverUrl::parse(&format!("{url}{path}")).unwrap())
}

fn tenant() -> ExtraHeaders {
    ExtraHeaders::parse("X-Scope-OrgID: shop\n").unwrap()
}

/// Deliveries so far: done, failed, waiting.
fn counts(server: &Server) -> [u64; 3] {
    let own = &server.json("/api/v1/overview")["own"];
    ["sent", "failed", "queued"].map(|name| own["deliveries"][name].as_u64().unwrap())
}

#[test]
fn a_receiver_that_wants_a_tenant_gets_it_with_every_push() {
    let (url, heads) = receiver(&[Treatment::AskTenant]);
    let (otlp, otlp_heads) = receiver(&[Treatment::AskTenant]);
    let server = Server::with(|options| {
        options.push.remote_write = address(&url, "/prometheus/api/v1/push");
        options.push.remote_write_headers = tenant();
        options.push.otlp = address(&otlp, "/otlp/v1/metrics");
        options.push.otlp_headers = tenant();
        options.push.every = Duration::from_millis(100);
    });
    for (heads, path) in [
        (&heads, "post /prometheus/api/v1/push "),
        (&otlp_heads, "post /otlp/v1/metrics "),
    ] {
        for _ in 0..2 {
            let head = heads.recv_timeout(PATIENCE).expect("a push");
            assert!(head.starts_with(path), "{head}");
            assert!(head.contains("\r\nx-scope-orgid: shop\r\n"), "{head}");
            assert!(
                head.contains("\r\ncontent-type: application/x-protobuf\r\n"),
                "{head}"
            );
        }
    }
    testkit::wait_until("both are counted", || counts(&server)[0] >= 2);
    assert_eq!(counts(&server)[1], 0, "none failed");
}

#[test]
fn a_push_without_the_tenant_is_a_failure_that_is_logged() {
    let (url, heads) = receiver(&[Treatment::AskTenant]);
    let server = Server::with(|options| {
        options.push.remote_write = address(&url, "/prometheus/api/v1/push");
        options.push.every = Duration::from_millis(100);
    });
    heads.recv_timeout(PATIENCE).expect("a push");
    testkit::wait_until("the failure", || {
        let log = server.log();
        let failed = log
            .iter()
            .find(|line| line.contains("event=delivery_failed"));
        failed.is_some_and(|line| line.contains("401"))
    });
    assert_eq!(counts(&server)[0], 0);
}

/// Ticks go on, and only the newest push waits.
#[test]
fn a_receiver_that_hangs_delays_nothing_and_fills_no_memory() {
    let (url, heads) = receiver(&[Treatment::Hang]);
    let server = Server::with(|options| {
        options.push.remote_write = address(&url, "");
        options.push.every = Duration::from_millis(50);
    });
    heads.recv_timeout(PATIENCE).expect("a push");
    server.ticks(40);
    let [sent, _, queued] = counts(&server);
    assert_eq!(sent, 0);
    assert!(queued <= 1, "{queued} pushes wait");
    // Nor does the end of the server wait for it.
    let began = std::time::Instant::now();
    drop(server);
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_receiver_that_fails_gets_the_newest_push_when_it_is_back() {
    use Treatment::Answer;
    let (url, heads) = receiver(&[Answer(500), Answer(503), Answer(200)]);
    let server = Server::with(|options| {
        options.push.remote_write = address(&url, "");
        options.push.every = Duration::from_millis(50);
    });
    for _ in 0..3 {
        let head = heads.recv_timeout(PATIENCE).expect("a push");
        assert!(head.starts_with("post /api/v1/write "), "{head}");
    }
    testkit::wait_until("a push that is delivered", || counts(&server)[0] >= 1);
    assert_eq!(counts(&server)[1], 2, "two attempts failed");
    assert!(counts(&server)[2] <= 1, "only the newest waits");
}
