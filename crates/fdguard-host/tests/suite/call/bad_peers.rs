//! Servers that misbehave.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use fdguard_host::call::{
    CallEventKind, CallFailure, CallPhase, CallRequest, Caller, Options, TimeLimit, Timeouts,
};

use super::abort::Silent;
use super::kit::{Log, caller, descriptors, tls_caller, until_descriptors};
use super::peer::{Identity, Peer, answer_all, read_request, wait_for_end};

/// Answers one request with these bytes and ends the connection.
fn says(bytes: &'static [u8]) -> Peer {
    Peer::start(move |mut stream| {
        read_request(&mut stream);
        drop(stream.write_all(bytes));
    })
}

async fn whole(peer: &Peer) -> Result<Vec<u8>, CallFailure> {
    let caller = caller(&Log::default());
    let mut call = caller.start(CallRequest::get(&peer.url("/"))).unwrap();
    let result = call.collect(1 << 20).await;
    drop(call);
    assert_eq!(
        caller.idle_connections(),
        0,
        "a poisoned connection is not kept"
    );
    result
}

fn quick(connect: u64, first_byte: u64, idle: u64, total: u64) -> Timeouts {
    let ms = |ms| (ms > 0).then(|| Duration::from_millis(ms));
    Timeouts {
        connect: ms(connect),
        first_byte: ms(first_byte),
        idle: ms(idle),
        total: ms(total),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_way_to_end_early_or_to_talk_nonsense_has_its_word() {
    let baseline = descriptors();
    for (bytes, code) in [
        (&b""[..], "closed-early"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", "closed-early"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf",
            "closed-early",
        ),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
            "closed-early",
        ),
        (b"\x16\x03\x01 this is no HTTP at all\r\n\r\n", "garbled"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
            "garbled",
        ),
    ] {
        let failure = whole(&says(bytes)).await.unwrap_err();
        assert_eq!(
            failure.code(),
            code,
            "{failure} after {:?}",
            String::from_utf8_lossy(bytes)
        );
    }
    // Without a length the end of the connection is the end of the body.
    let body = whole(&says(b"HTTP/1.1 200 OK\r\n\r\nto the end")).await;
    assert_eq!(body.unwrap(), b"to the end");
    until_descriptors(baseline);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_without_end_and_a_body_without_end_are_bounded() {
    let heads = Peer::start(|mut stream| {
        read_request(&mut stream);
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\n"));
        while stream
            .write_all(b"x-more: 0123456789012345678901234567890123456789\r\n")
            .is_ok()
        {}
    });
    assert_eq!(whole(&heads).await.unwrap_err().code(), "garbled");
    let chunks = Peer::start(|mut stream| {
        read_request(&mut stream);
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"));
        while stream.write_all(b"a\r\n0123456789\r\n").is_ok() {}
    });
    assert_eq!(
        whole(&chunks).await,
        Err(CallFailure::TooLarge { max: 1 << 20 })
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_limit_of_time_has_its_own_word() {
    let silent = Silent::new();
    let mute = Peer::start(|mut stream| wait_for_end(&mut stream));
    let half = Peer::start(|mut stream| {
        read_request(&mut stream);
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"));
        wait_for_end(&mut stream);
    });
    let drip = Peer::start(drip);
    let identity = Identity::new();
    let baseline = descriptors();
    for (url, timeouts, limit) in [
        (
            format!("http://{}/", silent.address),
            quick(50, 0, 0, 0),
            TimeLimit::Connect,
        ),
        (mute.secure_url("/"), quick(50, 0, 0, 0), TimeLimit::Connect),
        (mute.url("/"), quick(5000, 50, 0, 0), TimeLimit::FirstByte),
        (half.url("/"), quick(5000, 5000, 50, 0), TimeLimit::Idle),
        (
            drip.url("/"),
            quick(5000, 5000, 5000, 150),
            TimeLimit::Total,
        ),
        (
            format!("http://{}/", silent.address),
            quick(5000, 0, 0, 50),
            TimeLimit::Total,
        ),
    ] {
        let caller = tls_caller(&Log::default(), &identity.pem);
        let mut call = caller
            .start(CallRequest {
                timeouts,
                ..CallRequest::get(&url)
            })
            .unwrap();
        let began = Instant::now();
        let failure = call.collect(1000).await.unwrap_err();
        assert!(
            matches!(failure, CallFailure::Timeout { limit: found, .. } if found == limit),
            "{limit}: {failure}"
        );
        assert_eq!(failure.code(), limit.word());
        assert!(
            began.elapsed() < Duration::from_secs(4),
            "{limit} took {:?}",
            began.elapsed()
        );
    }
    drop(half);
    drop(drip);
    until_descriptors(baseline - 2);
}

/// A byte now and then, without end.
fn drip(mut stream: TcpStream) {
    read_request(&mut stream);
    drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n"));
    while stream.write_all(b"x").is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Single bytes are not silence: the limit between bytes does not end the call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_byte_a_second_is_slow_but_not_silent() {
    let peer = Peer::start(|mut stream| {
        read_request(&mut stream);
        for byte in b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n" {
            drop(stream.write_all(&[*byte]));
        }
        for byte in b"abc" {
            std::thread::sleep(Duration::from_secs(1));
            drop(stream.write_all(&[*byte]));
        }
        wait_for_end(&mut stream);
    });
    let caller = caller(&Log::default());
    let timeouts = quick(2500, 2500, 2500, 0);
    let mut call = caller
        .start(CallRequest {
            timeouts,
            ..CallRequest::get(&peer.url("/"))
        })
        .unwrap();
    let began = Instant::now();
    let mut pieces = Vec::new();
    while let Some(piece) = call.chunk().await.unwrap() {
        pieces.push(piece);
    }
    assert_eq!(pieces, [b"a", b"b", b"c"]);
    assert!(began.elapsed() >= Duration::from_millis(2900));
}

/// The limits are of the owner's wait, not of the time between its waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_was_busy_elsewhere_is_not_late() {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let peer = Peer::start(move |mut stream| {
        read_request(&mut stream);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na")
            .unwrap();
        assert!(gate.lock().unwrap().recv().is_err());
        drop(stream.write_all(b"b"));
        wait_for_end(&mut stream);
    });
    let caller = caller(&Log::default());
    let timeouts = quick(5000, 5000, 400, 0);
    let mut call = caller
        .start(CallRequest {
            timeouts,
            ..CallRequest::get(&peer.url("/"))
        })
        .unwrap();
    assert_eq!(call.chunk().await.unwrap().unwrap(), b"a");
    super::kit::until("longer than the limit", || call.info().idle_ms > 500);
    drop(release);
    assert_eq!(call.chunk().await.unwrap().unwrap(), b"b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_connection_an_unknown_certificate_and_no_roots_are_told_in_one_line() {
    let identity = Identity::new();
    let stranger = Identity::new();
    let peer = Peer::tls(&identity, |mut stream| {
        answer_all(&mut stream, b"HTTP/1.1 204 No\r\n\r\n")
    });
    let log = Log::default();
    let ask = async |caller: Caller, url: String| {
        let mut call = caller.start(CallRequest::get(&url)).unwrap();
        call.response().await.unwrap_err()
    };
    let failure = ask(tls_caller(&log, &stranger.pem), peer.secure_url("/")).await;
    assert_eq!(failure.code(), "tls-failed");
    assert!(failure.to_string().contains("certificate"), "{failure}");
    let failure = ask(caller(&log), peer.secure_url("/")).await;
    assert!(
        failure.to_string().contains("no trusted certificates"),
        "{failure}"
    );
    let nobody = std::net::TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap();
    let failure = ask(caller(&log), format!("http://{nobody}/")).await;
    assert_eq!(failure.code(), "connect-failed");
    assert_eq!(log.of(CallEventKind::Ended).len(), 3);
    assert!(
        log.of(CallEventKind::Ended)
            .iter()
            .all(|end| end.phase != CallPhase::Over)
    );
    let bad = Caller::new(Options {
        extra_roots: b"nonsense".to_vec(),
        ..Options::default()
    });
    assert_eq!(bad.unwrap_err().code(), "bad-request");
}
