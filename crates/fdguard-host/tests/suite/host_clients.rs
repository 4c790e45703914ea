//! Clients: what they opened ends with them.

use std::time::Duration;

use fdguard_host::receipt::SessionEndReason;
use fdguard_host::session::{Exec, ExecOutcome};

use super::host_harness::{
    Lines, assert_clean, baseline, bash, eventually, exec, lives, options, say, start,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_runs_out_ends_its_sessions_and_no_others() {
    let lines = Lines::default();
    let mut options = options();
    options.events = lines.events();
    let host = start(options).await;
    let client = host
        .client(Some("tab"), Some(Duration::from_millis(200)))
        .unwrap();
    let other = host.client(None, None).unwrap();
    let first = host.open(Some(&client), bash()).await.unwrap();
    let second = host.open(Some(&client), bash()).await.unwrap();
    let kept = host.open(Some(&other), bash()).await.unwrap();
    eventually("the lease ran out", || host.sessions().len() == 1).await;
    for id in [&first, &second] {
        let receipt = host.close(id, SessionEndReason::Asked).await.unwrap();
        assert_eq!(receipt.reason, SessionEndReason::ClientGone);
        assert_clean(&receipt);
    }
    assert_eq!(say(&host, &kept, "echo kept").await, "kept");
    assert_eq!(host.renew(&client).unwrap_err().code(), "unknown");
    assert_eq!(
        host.open(Some(&client), bash()).await.unwrap_err().code(),
        "unknown"
    );
    assert_eq!(host.clients().len(), 1);
    assert_eq!(lines.of("client_gone").len(), 1);
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_and_a_renewal_keep_a_lease() {
    let host = start(options()).await;
    let lease = Duration::from_millis(400);
    let client = host.client(None, Some(lease)).unwrap();
    let id = host.open(Some(&client), bash()).await.unwrap();
    // Longer than the lease: it does not run out while the call runs.
    let done = exec(&host, &id, "sleep 1; echo still").await;
    assert_eq!(done.stdout.text.trim(), "still");
    let until = std::time::Instant::now() + lease * 3;
    while std::time::Instant::now() < until {
        host.renew(&client).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(say(&host, &id, "echo kept").await, "kept");
    eventually("nobody renews it any more", || host.clients().is_empty()).await;
    eventually("its session ended", || host.sessions().is_empty()).await;
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_is_dropped_ends_the_client_with_its_running_command() {
    let host = start(options()).await;
    let before = baseline(&host);
    let guard = host.client_guard(Some("connection")).unwrap();
    let id = host.open(Some(guard.id()), bash()).await.unwrap();
    let running = {
        let (host, id) = (host.clone(), id.clone());
        tokio::spawn(async move { host.exec(&id, Exec::new("sleep 100"), None).await })
    };
    eventually("the command runs", || host.health().sessions.busy == 1).await;
    let members = host.members(&id).unwrap();
    assert!(!members.is_empty() && members.iter().all(|pid| lives(*pid)));
    // Outside of the runtime, as a connection may be dropped anywhere.
    std::thread::spawn(move || drop(guard)).join().unwrap();
    eventually("it ended", || host.sessions().is_empty()).await;
    let ended = running.await.unwrap();
    let by_itself =
        matches!(&ended, Ok(done) if matches!(done.outcome, ExecOutcome::Exited { .. }));
    assert!(!by_itself, "{ended:?}");
    assert!(members.iter().all(|pid| !lives(*pid)));
    assert_clean(&host.close(&id, SessionEndReason::Asked).await.unwrap());
    assert_eq!(baseline(&host), before);
    assert!(host.clients().is_empty());
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_client_gives_all_its_receipts_once() {
    let host = start(options()).await;
    let client = host.client(None, None).unwrap();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(host.open(Some(&client), bash()).await.unwrap());
    }
    assert_eq!(host.clients()[0].sessions, 3);
    let mut receipts = host
        .end_client(&client, SessionEndReason::Asked)
        .await
        .unwrap();
    receipts.iter().for_each(assert_clean);
    receipts.sort_by(|a, b| a.session.cmp(&b.session));
    ids.sort();
    assert!(
        ids.iter()
            .eq(receipts.iter().map(|receipt| &receipt.session))
    );
    let again = host
        .end_client(&client, SessionEndReason::Asked)
        .await
        .unwrap_err();
    assert_eq!(again.code(), "unknown");
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_nobody_waits_for_any_more_is_closed() {
    let host = start(options()).await;
    let before = baseline(&host);
    for _ in 0..10 {
        let opening = {
            let host = host.clone();
            tokio::spawn(async move { host.open(None, bash()).await })
        };
        eventually("it has its place", || host.health().sessions.open == 1).await;
        opening.abort();
        let unclaimed = opening.await;
        if let Ok(Ok(id)) = unclaimed {
            host.close(&id, SessionEndReason::Asked).await.unwrap();
        }
        eventually("it is gone", || host.health().sessions.open == 0).await;
    }
    assert_eq!(baseline(&host), before);
    host.shut_down().await;
}
