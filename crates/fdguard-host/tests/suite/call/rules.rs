//! Sent requests, events of a stream, the list of running calls, stale calls.

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fdguard_host::call::{
    AbortReason, CallEventKind, CallFailure, CallPhase, CallRequest, Caller, Calls, Options,
};

use super::kit::{Log, caller, until};
use super::peer::{Peer, answer_all, read_request, wait_for_end};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_goes_out_as_it_was_given_and_a_redirect_is_an_answer() {
    let seen = Arc::new(Mutex::new(String::new()));
    let note = Arc::clone(&seen);
    let peer = Peer::start(move |mut stream| {
        *note.lock().unwrap() = read_request(&mut stream).unwrap();
        stream
            .write_all(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\ncontent-length: 0\r\n\r\n")
            .unwrap();
        wait_for_end(&mut stream);
    });
    let caller = caller(&Log::default());
    let mut request = CallRequest::post(&peer.url("/a?b=c"), "hello");
    request.headers = vec![("X-Key".to_owned(), "secret".to_owned())];
    let mut call = caller.start(request).unwrap();
    let head = call.response().await.unwrap();
    assert_eq!(
        (head.status, head.header("location")),
        (302, Some("/elsewhere"))
    );
    assert_eq!(call.chunk().await, Ok(None));
    assert_eq!(
        call.response().await.unwrap(),
        head,
        "it can be asked for again"
    );
    let ended = call.finish();
    assert!(ended.is_kept && ended.bytes_out > 50 && ended.bytes_in > 50);
    let seen = seen.lock().unwrap();
    assert!(seen.starts_with("POST /a?b=c HTTP/1.1\r\n"), "{seen}");
    assert!(
        seen.contains(&format!("host: {}\r\n", peer.address)),
        "{seen}"
    );
    assert!(
        seen.contains("x-key: secret\r\n") && seen.contains("content-length: 5\r\n"),
        "{seen}"
    );
    assert!(seen.ends_with("\r\n\r\nhello"), "{seen}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_stream_come_one_by_one_and_the_rest_can_be_aborted() {
    let peer = Peer::start(|mut stream| {
        read_request(&mut stream);
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head).unwrap();
        for piece in ["event: del", "ta\ndata: one\n", "\ndata: two\n\ndata: thr"] {
            stream
                .write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes())
                .unwrap();
        }
        wait_for_end(&mut stream);
    });
    let caller = caller(&Log::default());
    let mut call = caller.start(CallRequest::get(&peer.url("/"))).unwrap();
    let first = call.event().await.unwrap().unwrap();
    assert_eq!(
        (first.event.as_str(), first.data.as_str()),
        ("delta", "one")
    );
    assert_eq!(call.event().await.unwrap().unwrap().data, "two");
    let watchdog = super::kit::abort_in(call.handle(), CallPhase::Body);
    assert!(matches!(
        call.event().await,
        Err(CallFailure::Aborted { .. })
    ));
    watchdog.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_was_left_can_be_taken_up_again() {
    let peer = Peer::start(|mut stream| {
        answer_all(
            &mut stream,
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        )
    });
    let caller = caller(&Log::default());
    let baseline = super::kit::descriptors();
    let mut call = caller.start(CallRequest::get(&peer.url("/"))).unwrap();
    let mut tries = 0;
    let head = loop {
        tries += 1;
        tokio::select! {
            biased;
            () = std::future::ready(()), if tries % 2 == 1 => {}
            head = call.response() => break head.unwrap(),
            () = tokio::task::yield_now() => {}
        }
    };
    assert_eq!(head.status, 200);
    assert_eq!(call.collect(9).await.unwrap(), b"ok");
    drop(call);
    assert_eq!(caller.close().in_flight, 0);
    super::kit::until_descriptors(baseline);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_calls_are_listed_without_secrets_capped_and_aborted_by_id() {
    let peer = Peer::start(|mut stream| wait_for_end(&mut stream));
    let calls = Calls::with_cap(caller(&Log::default()), 2);
    let mut first = calls
        .start(CallRequest::get(&peer.url("/a?key=SECRET")))
        .unwrap();
    let second = calls
        .start(CallRequest::post(&peer.url("/b"), "x"))
        .unwrap();
    let refused = calls.start(CallRequest::get(&peer.url("/c"))).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "too many calls: 2 are open, which is the limit"
    );
    assert_eq!(refused.code(), "full");
    let id = first.id().to_owned();
    let owner = tokio::spawn(async move { first.response().await });
    until("the request is out", || {
        calls.find(&id).unwrap().phase == CallPhase::Wait
    });
    let list = calls.list();
    assert_eq!(list.len(), 2);
    assert_eq!(
        (list[0].id.as_str(), list[0].method.as_str()),
        (id.as_str(), "GET")
    );
    assert_eq!(list[0].url, peer.url("/a?key=…"));
    assert!(list[0].bytes_out > 20 && list[0].bytes_in == 0 && !list[0].stale);
    assert_eq!(
        (list[1].phase, list[1].method.as_str()),
        (CallPhase::New, "POST")
    );
    let json = serde_json::to_value(&list[0]).unwrap();
    assert_eq!(json["phase"], "wait");
    assert_eq!(calls.abort(&id).unwrap().sockets, 1);
    assert!(matches!(
        owner.await.unwrap(),
        Err(CallFailure::Aborted { .. })
    ));
    assert_eq!(
        calls.abort(&id).unwrap_err().to_string(),
        format!("no such call: {id}")
    );
    drop(second);
    assert!(calls.list().is_empty());
    let bad = calls.start(CallRequest::get("gopher://x/")).unwrap_err();
    assert_eq!(bad.code(), "bad-request");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_a_call_without_a_byte_for_too_long_is_stale_and_can_be_aborted_for_it() {
    let peer = Peer::start(|mut stream| wait_for_end(&mut stream));
    let log = Log::default();
    let options = Options {
        sink: log.sink(),
        system_roots: false,
        stale_after: Duration::from_millis(200),
        ..Options::default()
    };
    let caller = Caller::new(options).unwrap();
    let mut call = caller.start(CallRequest::get(&peer.url("/"))).unwrap();
    assert!(caller.stale().is_empty() && caller.abort_stale().is_empty());
    let owner = tokio::spawn(async move { call.response().await });
    until("it is stale", || {
        caller
            .stale()
            .iter()
            .any(|call| call.phase == CallPhase::Wait)
    });
    let fresh = caller.start(CallRequest::get(&peer.url("/fresh"))).unwrap();
    let ended = caller.abort_stale();
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].1.sockets, 1);
    let failure = owner.await.unwrap().unwrap_err();
    assert_eq!(
        failure,
        CallFailure::Aborted {
            reason: AbortReason::Stale,
            phase: CallPhase::Wait
        }
    );
    let end = &log.of(CallEventKind::Ended)[0];
    assert!(end.to_string().contains(" reason=stale "), "{end}");
    drop(fresh);
}
