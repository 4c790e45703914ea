//! An abort in every phase.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use fdguard_host::call::{
    AbortReason, CallEventKind, CallFailure, CallPhase, CallRequest, Caller, EventLevel, Options,
};

use super::kit::{Log, abort_in, caller, descriptors, tls_caller, until, until_descriptors};
use super::peer::{Identity, Peer, read_request, wait_for_end};

fn aborted(phase: CallPhase) -> CallFailure {
    CallFailure::Aborted {
        reason: AbortReason::Asked,
        phase,
    }
}

/// A listener with a full queue: it answers no SYN.
pub(super) struct Silent {
    pub(super) address: SocketAddr,
    _listener: TcpListener,
    _waiting: Vec<rustix::fd::OwnedFd>,
}

impl Silent {
    pub(super) fn new() -> Self {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, listen, socket_with};
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listen(&listener, 0).unwrap();
        let address = listener.local_addr().unwrap();
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let waiting = (0..4).map(|_| {
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
            let _in_progress = connect(&socket, &address);
            socket
        });
        let waiting = waiting.collect();
        Self {
            address,
            _listener: listener,
            _waiting: waiting,
        }
    }
}

/// The log entry of a call that a stranger aborted while it had a socket.
fn assert_logged(log: &Log, phase: CallPhase, sockets: u32) {
    let aborts = log.of(CallEventKind::Aborted);
    assert_eq!(aborts.len(), 1, "{aborts:?}");
    assert_eq!(aborts[0].phase, phase);
    assert_eq!(aborts[0].tcp_force_closed, Some(sockets));
    assert_eq!(aborts[0].by.name.as_deref(), Some("watchdog"));
    let expected = if sockets == 0 {
        EventLevel::Warning
    } else {
        EventLevel::Info
    };
    assert_eq!(aborts[0].level, expected);
    let ends = log.of(CallEventKind::Ended);
    assert_eq!(ends.len(), 1, "{ends:?}");
    assert_eq!(ends[0].deferred_close, Some("stranger_thread"));
    assert_eq!(ends[0].tcp_force_closed, Some(sockets));
    assert_eq!(ends[0].failure, Some("aborted"));
    assert_eq!(ends[0].aborted_by.as_ref(), Some(&aborts[0].by));
    let line = ends[0].to_string();
    assert!(
        line.contains(&format!(
            " tcp_force_closed={sockets} deferred_close=stranger_thread "
        )),
        "{line}"
    );
    assert!(line.contains(" aborted_by=watchdog/"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_an_abort_while_a_name_is_looked_up_returns_at_once_and_warns() {
    let baseline = descriptors();
    let log = Log::default();
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let lookup = Arc::new(move |_: &str, _: u16| {
        assert!(gate.lock().unwrap().recv().is_err());
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], 9))])
    });
    let options = Options {
        sink: log.sink(),
        system_roots: false,
        lookup,
        ..Options::default()
    };
    let caller = Caller::new(options).unwrap();
    let mut call = caller
        .start(CallRequest::get("http://slow.invalid/"))
        .unwrap();
    let watchdog = abort_in(call.handle(), CallPhase::Resolve);
    assert_eq!(call.response().await, Err(aborted(CallPhase::Resolve)));
    let done = watchdog.join().unwrap();
    assert_eq!(
        (done.sockets, done.phase, done.repeated),
        (0, CallPhase::Resolve, false)
    );
    assert_logged(&log, CallPhase::Resolve, 0);
    let warning = log.of(CallEventKind::Aborted)[0].to_string();
    assert!(warning.contains("nothing was sent"), "{warning}");
    drop(release);
    drop(call);
    until_descriptors(baseline);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_lookups_that_never_end_are_bounded_and_their_queue_can_be_aborted() {
    let log = Log::default();
    let (release, gate) = mpsc::channel::<()>();
    let (entered, entries) = mpsc::channel();
    let (gate, entered) = (Mutex::new(gate), Mutex::new(entered));
    let lookup = Arc::new(move |host: &str, _: u16| {
        entered.lock().unwrap().send(host.to_owned()).unwrap();
        assert!(gate.lock().unwrap().recv().is_err());
        Err(std::io::Error::other("no such name"))
    });
    let options = Options {
        sink: log.sink(),
        system_roots: false,
        lookup,
        lookups: 1,
        ..Options::default()
    };
    let caller = Caller::new(options).unwrap();
    let mut first = caller
        .start(CallRequest::get("http://one.invalid/"))
        .unwrap();
    let first = tokio::spawn(async move { first.response().await });
    let seen = tokio::task::spawn_blocking(move || (entries.recv().unwrap(), entries));
    let (host, entries) = seen.await.unwrap();
    assert_eq!(host, "one.invalid");
    let mut second = caller
        .start(CallRequest::get("http://two.invalid/"))
        .unwrap();
    let watchdog = abort_in(second.handle(), CallPhase::Resolve);
    assert_eq!(second.response().await, Err(aborted(CallPhase::Resolve)));
    watchdog.join().unwrap();
    assert!(entries.try_recv().is_err(), "the second lookup began");
    drop(release);
    let failure = first.await.unwrap().unwrap_err();
    assert_eq!(
        failure.to_string(),
        "cannot resolve one.invalid: no such name"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_an_abort_reaches_a_connect_that_nobody_answers() {
    let silent = Silent::new();
    let baseline = descriptors();
    let log = Log::default();
    let caller = caller(&log);
    let mut call = caller
        .start(CallRequest::get(&format!("http://{}/", silent.address)))
        .unwrap();
    let watchdog = abort_in(call.handle(), CallPhase::Connect);
    assert_eq!(call.response().await, Err(aborted(CallPhase::Connect)));
    assert_eq!(watchdog.join().unwrap().sockets, 1);
    assert_logged(&log, CallPhase::Connect, 1);
    until_descriptors(baseline);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_an_abort_reaches_a_handshake_with_a_server_that_says_nothing() {
    let identity = Identity::new();
    let peer = Peer::start(|mut stream| wait_for_end(&mut stream));
    let log = Log::default();
    let caller = tls_caller(&log, &identity.pem);
    let mut call = caller
        .start(CallRequest::get(&peer.secure_url("/")))
        .unwrap();
    let watchdog = abort_in(call.handle(), CallPhase::Tls);
    assert_eq!(call.response().await, Err(aborted(CallPhase::Tls)));
    assert_eq!(watchdog.join().unwrap().sockets, 1);
    assert_logged(&log, CallPhase::Tls, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_an_abort_reaches_a_write_that_the_peer_does_not_read() {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let peer = Peer::start(move |stream| {
        assert!(gate.lock().unwrap().recv().is_err());
        drop(stream);
    });
    let log = Log::default();
    let caller = caller(&log);
    let request = CallRequest::post(&peer.url("/"), vec![b'x'; 64 << 20]);
    let mut call = caller.start(request).unwrap();
    let handle = call.handle();
    let watchdog = std::thread::Builder::new().name("watchdog".to_owned());
    let work = move || {
        until("a blocked write", || {
            handle.info().bytes_out > 0 && handle.info().idle_ms >= 20
        });
        assert_eq!(handle.info().phase, CallPhase::Send);
        handle.abort()
    };
    let watchdog = watchdog.spawn(work).unwrap();
    assert_eq!(call.response().await, Err(aborted(CallPhase::Send)));
    assert_eq!(watchdog.join().unwrap().sockets, 1);
    assert_logged(&log, CallPhase::Send, 1);
    drop(release);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_an_abort_reaches_a_wait_for_the_answer_plain_and_tls() {
    let identity = Identity::new();
    let plain = Peer::start(|mut stream| wait_for_end(&mut stream));
    let secure = Peer::tls(&identity, |mut stream| wait_for_end(&mut stream));
    for url in [plain.url("/"), secure.secure_url("/")] {
        let log = Log::default();
        let caller = tls_caller(&log, &identity.pem);
        let mut call = caller.start(CallRequest::get(&url)).unwrap();
        let watchdog = abort_in(call.handle(), CallPhase::Wait);
        assert_eq!(call.response().await, Err(aborted(CallPhase::Wait)));
        assert_eq!(watchdog.join().unwrap().sockets, 1);
        assert_logged(&log, CallPhase::Wait, 1);
        assert_eq!(caller.idle_connections(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_an_abort_reaches_a_body_that_streams() {
    let peer = Peer::start(|mut stream| {
        read_request(&mut stream);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome")
            .unwrap();
        wait_for_end(&mut stream);
    });
    let log = Log::default();
    let caller = caller(&log);
    let mut call = caller.start(CallRequest::get(&peer.url("/"))).unwrap();
    assert_eq!(call.response().await.unwrap().status, 200);
    assert_eq!(call.chunk().await.unwrap().as_deref(), Some(&b"some"[..]));
    let watchdog = abort_in(call.handle(), CallPhase::Body);
    assert_eq!(call.chunk().await, Err(aborted(CallPhase::Body)));
    watchdog.join().unwrap();
    assert_eq!(
        call.chunk().await,
        Err(aborted(CallPhase::Body)),
        "and again"
    );
    assert_logged(&log, CallPhase::Body, 1);
    assert_eq!(caller.idle_connections(), 0);
}

/// The shutdown itself notifies the peer, without a wait on the owner's side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_the_peer_sees_the_end_while_the_owner_is_busy_elsewhere_and_no_number_is_freed() {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let peer = Peer::start(move |mut stream: TcpStream| {
        read_request(&mut stream);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome")
            .unwrap();
        wait_for_end(&mut stream);
        tell.lock().unwrap().send(Instant::now()).unwrap();
    });
    let log = Log::default();
    let caller = caller(&log);
    let mut call = caller.start(CallRequest::get(&peer.url("/"))).unwrap();
    call.response().await.unwrap();
    until("both ends", || log.all().is_empty() && peer.accepted() == 1);
    let numbers = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = links
            .filter_map(|entry| Some((entry.file_name(), std::fs::read_link(entry.path()).ok()?)));
        let mut sockets: Vec<_> = links
            .filter(|(_, to)| to.to_string_lossy().starts_with("socket:"))
            .collect();
        sockets.sort();
        sockets
    };
    let before = numbers();
    let began = Instant::now();
    assert_eq!(call.handle().abort().sockets, 1);
    let ended = told.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(ended - began < Duration::from_secs(1));
    let kept: Vec<_> = numbers()
        .into_iter()
        .filter(|socket| before.contains(socket))
        .collect();
    // The server's own two may be closed by now; none of the client's is.
    assert!(kept.len() >= before.len() - 2, "{before:?} {kept:?}");
    assert!(
        log.of(CallEventKind::Ended).is_empty(),
        "the owner has not closed"
    );
    drop(call);
    let end = &log.of(CallEventKind::Ended)[0];
    assert_eq!(
        end.deferred_close,
        Some("stranger_task"),
        "one thread did both"
    );
    assert_eq!(end.connection, Some("closed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_before_the_first_wait_means_that_nothing_is_sent() {
    let peer = Peer::start(|mut stream| wait_for_end(&mut stream));
    let log = Log::default();
    let caller = caller(&log);
    let mut call = caller.start(CallRequest::get(&peer.url("/"))).unwrap();
    let done = call.handle().abort();
    assert_eq!((done.sockets, done.phase), (0, CallPhase::New));
    assert_eq!(call.response().await, Err(aborted(CallPhase::New)));
    assert_eq!(peer.accepted(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_abort_changes_nothing_and_one_after_the_end_is_no_event() {
    let peer = Peer::start(|mut stream| {
        super::peer::answer_all(
            &mut stream,
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        );
    });
    let log = Log::default();
    let caller = caller(&log);
    let mut call = caller.start(CallRequest::get(&peer.url("/"))).unwrap();
    call.response().await.unwrap();
    let handle = call.handle();
    assert_eq!(handle.abort().sockets, 1);
    let again = handle.abort();
    assert_eq!((again.sockets, again.repeated), (0, true));
    drop(call);
    assert_eq!(log.of(CallEventKind::Aborted).len(), 1);
    assert_eq!(log.of(CallEventKind::Ended).len(), 1);

    let mut call = caller.start(CallRequest::get(&peer.url("/"))).unwrap();
    let handle = call.handle();
    assert_eq!(call.collect(10).await.unwrap(), b"ok");
    let ended = call.finish();
    assert!(ended.is_whole && ended.is_kept && !ended.is_reused);
    let late = handle.abort();
    assert_eq!(
        (late.sockets, late.phase, late.repeated),
        (0, CallPhase::Over, false)
    );
    assert_eq!(
        log.of(CallEventKind::Aborted).len(),
        1,
        "no event for an abort after the end"
    );
    let end = &log.of(CallEventKind::Ended)[1];
    assert_eq!(
        (end.tcp_force_closed, end.deferred_close, end.connection),
        (None, None, Some("kept"))
    );
    assert_eq!(
        caller.idle_connections(),
        1,
        "the late abort has not touched it"
    );
    let mut call = caller.start(CallRequest::get(&peer.url("/"))).unwrap();
    assert_eq!(call.collect(10).await.unwrap(), b"ok");
    assert!(call.finish().is_reused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_of_the_owner_and_an_abort_at_once_close_exactly_once() {
    let peer = Peer::start(|mut stream| {
        read_request(&mut stream);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome")
            .unwrap();
        wait_for_end(&mut stream);
    });
    let log = Log::default();
    let caller = caller(&log);
    let baseline = descriptors();
    for _ in 0..200 {
        let mut call = caller.start(CallRequest::get(&peer.url("/"))).unwrap();
        call.response().await.unwrap();
        let handle = call.handle();
        let gate = Arc::new(std::sync::Barrier::new(2));
        let other = Arc::clone(&gate);
        let stranger = std::thread::spawn(move || {
            other.wait();
            handle.abort()
        });
        tokio::task::block_in_place(|| gate.wait());
        drop(call);
        stranger.join().unwrap();
    }
    assert_eq!(log.of(CallEventKind::Ended).len(), 200);
    until_descriptors(baseline);
}
