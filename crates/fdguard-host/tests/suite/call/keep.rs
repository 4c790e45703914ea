//! Connections that serve more than one call, and those that must not.

use std::io::Write as _;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use fdguard_host::call::{CallEventKind, CallRequest, Caller, Options};

use super::kit::{Log, caller, descriptors, tls_caller, until, until_descriptors};
use super::peer::{Identity, Peer, answer_all, read_request};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

async fn fetch(caller: &Caller, url: &str) -> Vec<u8> {
    let mut call = caller.start(CallRequest::get(url)).unwrap();
    call.collect(1000).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_use_one_connection_and_leave_no_descriptor() {
    let baseline = descriptors();
    let identity = Identity::new();
    let plain = Peer::start(|mut stream| answer_all(&mut stream, OK));
    let secure = Peer::tls(&identity, |mut stream| answer_all(&mut stream, OK));
    let chunked: &[u8] =
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let pieces = Peer::start(move |mut stream| answer_all(&mut stream, chunked));
    let caller = tls_caller(&Log::default(), &identity.pem);
    for _ in 0..400 {
        assert_eq!(fetch(&caller, &plain.url("/")).await, b"ok");
        assert_eq!(fetch(&caller, &secure.secure_url("/")).await, b"ok");
        assert_eq!(fetch(&caller, &pieces.url("/")).await, b"ok");
    }
    for peer in [&plain, &secure, &pieces] {
        assert_eq!(peer.accepted(), 1);
    }
    assert_eq!(caller.idle_connections(), 3);
    drop(caller);
    drop((plain, secure, pieces));
    // tokio's own were there before: the runtime began before the test.
    until_descriptors(baseline);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_without_keeping_leave_no_descriptor() {
    let peer = Peer::start(|mut stream| answer_all(&mut stream, OK));
    let options = Options {
        system_roots: false,
        idle_per_origin: 0,
        ..Options::default()
    };
    let caller = Caller::new(options).unwrap();
    let baseline = descriptors();
    for _ in 0..1000 {
        assert_eq!(fetch(&caller, &peer.url("/")).await, b"ok");
    }
    assert_eq!(peer.accepted(), 1000);
    until_descriptors(baseline);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_peer_closes_or_wants_closed_is_not_used_again() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"[..],
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ] {
        let peer = Peer::start(move |mut stream| answer_all(&mut stream, answer));
        let log = Log::default();
        let caller = caller(&log);
        assert_eq!(fetch(&caller, &peer.url("/")).await, b"ok");
        assert_eq!(caller.idle_connections(), 0);
        assert_eq!(log.of(CallEventKind::Ended)[0].connection, Some("closed"));
    }
    // It closes without a message: the next call notices before it sends, so a POST is safe too.
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let once = Peer::start(move |mut stream| {
        read_request(&mut stream);
        stream.write_all(OK).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
        tell.lock().unwrap().send(()).unwrap();
    });
    let caller = caller(&Log::default());
    for count in 1..50 {
        let mut call = caller
            .start(CallRequest::post(&once.url("/"), "x"))
            .unwrap();
        assert_eq!(call.collect(10).await.unwrap(), b"ok");
        told.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(once.accepted(), count);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_get_on_a_connection_that_dies_when_it_is_used_is_sent_again_and_a_post_is_not() {
    // Every connection answers once, and ends when a second request arrives.
    let serve = |mut stream: std::net::TcpStream| {
        read_request(&mut stream);
        stream.write_all(OK).unwrap();
        read_request(&mut stream);
    };
    let peer = Peer::start(serve);
    let caller = caller(&Log::default());
    assert_eq!(fetch(&caller, &peer.url("/")).await, b"ok");
    assert_eq!(fetch(&caller, &peer.url("/")).await, b"ok");
    assert_eq!(peer.accepted(), 2);
    let mut call = caller
        .start(CallRequest::post(&peer.url("/"), "x"))
        .unwrap();
    assert_eq!(call.collect(10).await.unwrap_err().code(), "closed-early");
    assert_eq!(peer.accepted(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_was_not_read_to_its_end_poisons_its_connection() {
    let peer = Peer::start(|mut stream| {
        answer_all(
            &mut stream,
            b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nno",
        );
    });
    let caller = caller(&Log::default());
    let mut call = caller.start(CallRequest::get(&peer.url("/"))).unwrap();
    assert_eq!(call.chunk().await.unwrap().unwrap(), b"no");
    let ended = call.finish();
    assert!(!ended.is_whole && !ended.is_kept);
    assert_eq!(caller.idle_connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_are_few_and_end_after_their_time() {
    let peer = Peer::start(|mut stream| answer_all(&mut stream, OK));
    let options = Options {
        system_roots: false,
        idle_per_origin: 2,
        idle_timeout: Duration::from_millis(300),
        ..Options::default()
    };
    let caller = Caller::new(options).unwrap();
    let baseline = descriptors();
    let url = peer.url("/");
    let five = (0..5).map(|_| {
        let mut call = caller.start(CallRequest::get(&url)).unwrap();
        async move {
            call.response().await.unwrap();
            call
        }
    });
    let calls = futures_util::future::join_all(five).await;
    assert_eq!(peer.accepted(), 5);
    for mut call in calls {
        assert_eq!(call.collect(10).await.unwrap(), b"ok");
    }
    let since = Instant::now();
    assert!(caller.idle_connections() <= 2);
    until("the idle ones are closed", || {
        caller.idle_connections() == 0
    });
    assert!(since.elapsed() < Duration::from_secs(5));
    until_descriptors(baseline);
    // The next call starts another sweeper.
    fetch(&caller, &url).await;
    until("that one as well", || caller.idle_connections() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_a_close_with_a_call_in_flight_is_parked_and_done_by_that_call() {
    let peer = Peer::start(|mut stream| answer_all(&mut stream, OK));
    let log = Log::default();
    let caller = caller(&log);
    fetch(&caller, &peer.url("/")).await;
    let mut call = caller.start(CallRequest::get(&peer.url("/"))).unwrap();
    call.response().await.unwrap();
    let mut other = caller.start(CallRequest::get(&peer.url("/"))).unwrap();
    other.response().await.unwrap();
    assert_eq!(other.collect(9).await.unwrap(), b"ok");
    assert_eq!(caller.idle_connections(), 1);
    let closed = caller.close();
    assert_eq!((closed.idle, closed.in_flight), (1, 1));
    assert_eq!(log.of(CallEventKind::CloseParked).len(), 1);
    assert!(log.of(CallEventKind::CallerClosed).is_empty());
    assert_eq!(
        caller
            .start(CallRequest::get(&peer.url("/")))
            .unwrap_err()
            .code(),
        "closing"
    );
    assert_eq!(
        call.collect(9).await.unwrap(),
        b"ok",
        "the call in flight is whole"
    );
    let done = log.of(CallEventKind::CallerClosed);
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].call.as_deref(), Some(call.id()));
    assert!(!call.finish().is_kept);
    assert_eq!(caller.idle_connections(), 0);
}

/// The first address does not answer, the second one does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_with_a_dead_address_still_gets_an_answer() {
    let silent = super::abort::Silent::new();
    let peer = Peer::start(|mut stream| answer_all(&mut stream, OK));
    let addresses: Vec<SocketAddr> = vec![silent.address, peer.address];
    let lookup = Arc::new(move |_: &str, _: u16| Ok(addresses.clone()));
    let caller = Caller::new(Options {
        system_roots: false,
        lookup,
        ..Options::default()
    })
    .unwrap();
    let mut request = CallRequest::get("http://two.invalid/");
    request.timeouts.connect = Some(Duration::from_secs(2));
    let mut call = caller.start(request).unwrap();
    assert_eq!(call.collect(9).await.unwrap(), b"ok");
}
