//! The time from an abort to the owner's return.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use fdguard_host::call::{AbortHandle, CallPhase, CallRequest, Caller};

use super::abort::Silent;
use super::kit::{Log, tls_caller, until, until_phase};
use super::peer::{Identity, Peer, wait_for_end};

/// The median over rounds. The owner records when its wait has returned; a thread outside the
/// runtime aborts.
async fn median(
    caller: &Caller,
    rounds: usize,
    request: impl Fn() -> CallRequest,
    is_blocked: fn(&AbortHandle),
) -> Duration {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let mut call = caller.start(request()).unwrap();
        let handle = call.handle();
        let (tell, told) = mpsc::channel();
        let stranger = std::thread::spawn(move || {
            is_blocked(&handle);
            let began = Instant::now();
            let before = handle.info();
            let done = handle.abort();
            assert_eq!(done.sockets, 1, "{before:?} {done:?}");
            let returned: Instant = told.recv().unwrap();
            returned.saturating_duration_since(began)
        });
        let owner = tokio::spawn(async move {
            let failure = call.response().await.unwrap_err();
            tell.send(Instant::now()).unwrap();
            assert_eq!(failure.code(), "aborted");
        });
        owner.await.unwrap();
        times.push(stranger.join().unwrap());
    }
    times.sort();
    times[times.len() / 2]
}

fn waits(handle: &AbortHandle) {
    until_phase(handle, CallPhase::Wait);
}

fn connects(handle: &AbortHandle) {
    until("a connect", || {
        handle.info().phase == CallPhase::Connect && handle.info().age_ms >= 2
    });
}

fn sends(handle: &AbortHandle) {
    until("a blocked write", || {
        let info = handle.info();
        info.phase == CallPhase::Send && info.bytes_out > 0 && info.idle_ms >= 5
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_wakes_within_a_millisecond_usually() {
    let identity = Identity::new();
    let plain = Peer::start(|mut stream| wait_for_end(&mut stream));
    let secure = Peer::tls(&identity, |mut stream| wait_for_end(&mut stream));
    // Its connections end when the client's do: it only peeks, so it never reads.
    let full = Peer::start(|stream| {
        until("the end", || {
            stream.peer_addr().is_err() || is_reset(&stream)
        })
    });
    let silent = Silent::new();
    let caller = tls_caller(&Log::default(), &identity.pem);
    let body = vec![0_u8; 16 << 20];
    let recv = median(&caller, 200, || CallRequest::get(&plain.url("/")), waits).await;
    let tls = median(
        &caller,
        100,
        || CallRequest::get(&secure.secure_url("/")),
        waits,
    )
    .await;
    let connect = median(
        &caller,
        100,
        || CallRequest::get(&format!("http://{}/", silent.address)),
        connects,
    )
    .await;
    let send = median(
        &caller,
        30,
        || CallRequest::post(&full.url("/"), body.clone()),
        sends,
    )
    .await;
    for (what, time) in [
        ("recv", recv),
        ("TLS recv", tls),
        ("connect", connect),
        ("send", send),
    ] {
        eprintln!(
            "abort to return, blocked in {what}: median {} us",
            time.as_micros()
        );
        assert!(time < Duration::from_millis(20), "{what}: {time:?}");
    }
}

/// The client has closed although nothing was read: the kernel reports it.
fn is_reset(stream: &std::net::TcpStream) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(stream, PollFlags::RDHUP)];
    let none = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&none)).unwrap();
    fds[0]
        .revents()
        .intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}
