//! One end, one receipt, and everything as before.

use std::time::Duration;

use fdguard_host::host::Host;
use fdguard_host::receipt::SessionEndReason;
use fdguard_host::session::{Exec, ExecOutcome};
use futures_util::future::join_all;

use super::host_harness::{
    Lines, assert_clean, baseline, bash, bash_on_pipes, eventually, exec, options, say, start,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r56_of_twenty_closes_one_does_it_and_all_get_its_receipt() {
    let lines = Lines::default();
    let mut options = options();
    options.events = lines.events();
    let host = start(options).await;
    let id = host.open(None, bash()).await.unwrap();
    let closes = (0..20).map(|_| {
        let (host, id) = (host.clone(), id.clone());
        tokio::spawn(async move { host.close(&id, SessionEndReason::Asked).await.unwrap() })
    });
    let receipts: Vec<_> = join_all(closes)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_clean(&receipts[0]);
    assert!(receipts.iter().all(|receipt| *receipt == receipts[0]));
    let later = host.close(&id, SessionEndReason::Shutdown).await.unwrap();
    assert_eq!(later, receipts[0]);
    assert_eq!(lines.of("session_close").len(), 1);
    assert_eq!(host.receipts(), [later]);
    let unknown = host.close("0", SessionEndReason::Asked).await.unwrap_err();
    assert_eq!(unknown.to_string(), "no such session: 0");
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_goes_on_although_its_caller_went_away() {
    let host = start(options()).await;
    let id = host.open(None, bash()).await.unwrap();
    let closing = {
        let (host, id) = (host.clone(), id.clone());
        tokio::spawn(async move { host.close(&id, SessionEndReason::Asked).await })
    };
    eventually("it began", || {
        host.receipts().len() == 1 || closing.is_finished() || host.sessions().len() == 1
    })
    .await;
    closing.abort();
    let _aborted_or_done = closing.await;
    let receipt = host.close(&id, SessionEndReason::Shutdown).await.unwrap();
    assert_clean(&receipt);
    assert!(host.sessions().is_empty());
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_keeps_the_id_and_the_dir_with_a_new_program() {
    let host = start(options()).await;
    let id = host.open(None, bash()).await.unwrap();
    let before = host.session(&id).unwrap();
    assert_eq!(say(&host, &id, "cd /usr && X=1 && pwd").await, "/usr");
    let receipt = host.reset(&id).await.unwrap();
    assert_eq!(
        (receipt.reason, receipt.survivors),
        (SessionEndReason::Reset, Some(0))
    );
    let after = host.session(&id).unwrap();
    assert_ne!(before.pid, after.pid);
    assert_eq!(
        say(&host, &id, "echo \"$PWD:${X-gone}\"").await,
        "/usr:gone"
    );
    assert_eq!(host.sessions().len(), 1);
    assert_clean(&host.close(&id, SessionEndReason::Asked).await.unwrap());
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_command_at_a_time_is_refused_and_the_first_goes_on() {
    let host = start(options()).await;
    let id = host.open(None, bash()).await.unwrap();
    let first = {
        let (host, id) = (host.clone(), id.clone());
        tokio::spawn(async move { host.exec(&id, Exec::new("sleep 100"), None).await })
    };
    eventually("it runs", || host.health().sessions.busy == 1).await;
    let second = host.exec(&id, Exec::new("true"), None).await.unwrap_err();
    assert_eq!(second.code(), "busy");
    assert!(host.session(&id).unwrap().busy_ms.is_some());
    assert!(host.interrupt(&id).await.unwrap());
    let first = first.await.unwrap().unwrap();
    assert_eq!(first.outcome, ExecOutcome::Interrupted);
    assert!(!host.interrupt(&id).await.unwrap());
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r56_a_close_that_takes_too_long_is_told_as_unfinished_and_goes_on() {
    let lines = Lines::default();
    let mut options = options();
    options.max_sessions = 1;
    options.close_within = Duration::ZERO;
    options.events = lines.events();
    let host = start(options).await;
    let id = host.open(None, bash()).await.unwrap();
    // Its end takes time: until the grace for those who ignore the first signals is over.
    say(
        &host,
        &id,
        "read -r deaf < <(trap '' HUP TERM; echo yes; while :; do sleep 1000; done)",
    )
    .await;
    let early = host.close(&id, SessionEndReason::Asked).await.unwrap();
    assert_eq!((early.clean, early.survivors), (false, None));
    assert_eq!(
        early.errors,
        ["the session did not close within 0 ms; closing continues"]
    );
    eventually("it ended", || host.sessions().is_empty()).await;
    let last = host.close(&id, SessionEndReason::Asked).await.unwrap();
    assert_clean(&last);
    assert_eq!(host.receipts(), [last]);
    assert_eq!(lines.of("session_close_late").len(), 1);
    assert_eq!(lines.of("session_close").len(), 1);
    host.open(None, bash()).await.unwrap();
    host.shut_down().await;
}

/// One life of a session, of five kinds.
async fn cycle(host: &Host, round: usize) {
    let spec = if round.is_multiple_of(3) {
        bash_on_pipes()
    } else {
        bash()
    };
    let id = host.open(None, spec).await.unwrap();
    match round % 5 {
        0 => {
            let done = exec(host, &id, "exit 3").await;
            let ended = ExecOutcome::ProgramEnded { status: Some(3) };
            assert_eq!(done.outcome, ended);
        }
        1 => {
            let said = say(host, &id, "(setsid sleep 100 &) ; echo away").await;
            assert_eq!(said, "away");
        }
        2 => {
            let mut command = Exec::new("sleep 100");
            command.timeout = Duration::from_millis(50);
            let done = host.exec(&id, command, None).await.unwrap();
            assert_eq!(done.outcome, ExecOutcome::TimedOut);
        }
        _ => assert_eq!(say(host, &id, "echo $((6 * 7))").await, "42"),
    }
    assert_clean(&host.close(&id, SessionEndReason::Asked).await.unwrap());
}

#[test]
fn r48_two_hundred_cycles_leave_descriptors_children_and_threads_exactly_as_before() {
    // Idle threads end soon, so that the remaining ones can be counted.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_keep_alive(Duration::from_millis(50))
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let host = start(options()).await;
        let before = baseline(&host);
        let threads = host.health().thread_count.unwrap();
        for round in 0..200 {
            cycle(&host, round).await;
        }
        assert_eq!(baseline(&host), before);
        // This thread, that of the test harness and two workers.
        let has_back = || host.health().thread_count == Some(threads);
        eventually("the threads are back", has_back).await;
        host.shut_down().await;
    });
}
