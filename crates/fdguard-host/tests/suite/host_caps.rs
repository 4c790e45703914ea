//! Caps: never one too many, and which session gives way.

use std::time::Duration;

use fdguard_host::Error;
use fdguard_host::receipt::SessionEndReason;
use fdguard_host::session::{Exec, ExecOutcome};
use futures_util::future::join_all;

use super::host_harness::{
    Lines, assert_clean, baseline, bash, eventually, exec, missing, options, say, start,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r54_fifty_opens_at_once_never_exceed_the_cap() {
    let mut options = options();
    options.max_sessions = 8;
    let host = start(options).await;
    let before = baseline(&host);
    let opens = join_all((0..50).map(|_| host.open(None, bash()))).await;
    let (opened, refused): (Vec<_>, Vec<_>) = opens.into_iter().partition(Result::is_ok);
    assert_eq!((opened.len(), refused.len()), (8, 42));
    for error in refused.into_iter().filter_map(Result::err) {
        assert!(
            matches!(
                error,
                Error::Full {
                    what: "sessions",
                    count: 8
                }
            ),
            "{error}"
        );
    }
    assert_eq!(host.sessions().len(), 8);
    for id in opened.into_iter().flatten() {
        assert_eq!(say(&host, &id, "echo $((40 + 2))").await, "42");
        assert_clean(&host.close(&id, SessionEndReason::Asked).await.unwrap());
    }
    assert_eq!(baseline(&host), before);
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r47_a_failed_start_gives_its_place_back() {
    let lines = Lines::default();
    let mut options = options();
    options.max_sessions = 1;
    options.events = lines.events();
    let host = start(options).await;
    let before = baseline(&host);
    for _ in 0..5 {
        host.open(None, missing()).await.unwrap_err();
        assert_eq!(host.health().sessions.open, 0);
    }
    assert_eq!(baseline(&host), before);
    assert_eq!(lines.of("session_start_failed").len(), 5);
    let id = host.open(None, bash()).await.unwrap();
    assert_eq!(say(&host, &id, "echo here").await, "here");
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r54_an_idle_session_gives_way_at_the_cap_and_a_used_one_does_not() {
    let mut options = options();
    options.max_sessions = 2;
    options.idle_after = Duration::ZERO;
    let host = start(options).await;
    let busy = host.open(None, bash()).await.unwrap();
    let command = {
        let (host, busy) = (host.clone(), busy.clone());
        tokio::spawn(async move { host.exec(&busy, Exec::new("sleep 100"), None).await })
    };
    eventually("the command runs", || host.health().sessions.busy == 1).await;
    let idle = host.open(None, bash()).await.unwrap();
    let third = host.open(None, bash()).await.unwrap();
    let receipt = host.close(&idle, SessionEndReason::Asked).await.unwrap();
    assert_eq!(receipt.reason, SessionEndReason::Evicted);
    assert_clean(&receipt);
    let mut left: Vec<_> = host.sessions().into_iter().map(|info| info.id).collect();
    left.sort();
    let mut expected = vec![busy.clone(), third];
    expected.sort();
    assert_eq!(left, expected);
    assert!(host.interrupt(&busy).await.unwrap());
    let done = command.await.unwrap().unwrap();
    assert_eq!(done.outcome, ExecOutcome::Interrupted);
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_ends_by_itself_is_released_at_once_with_a_receipt() {
    let host = start(options()).await;
    let before = baseline(&host);
    let id = host.open(None, bash()).await.unwrap();
    let done = exec(&host, &id, "exit 7").await;
    assert_eq!(done.outcome, ExecOutcome::ProgramEnded { status: Some(7) });
    eventually("it is released", || host.sessions().is_empty()).await;
    assert_eq!(baseline(&host), before);
    let receipt = host.close(&id, SessionEndReason::Asked).await.unwrap();
    assert_eq!(receipt.reason, SessionEndReason::ProgramEnded);
    assert_clean(&receipt);
    let error = host.exec(&id, Exec::new("true"), None).await.unwrap_err();
    assert_eq!(error.code(), "ended");
    let error = host.exec("no", Exec::new("true"), None).await.unwrap_err();
    assert_eq!(error.code(), "unknown");
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r54_a_program_that_was_killed_gives_way_at_once() {
    let mut options = options();
    options.max_sessions = 1;
    let host = start(options).await;
    for _ in 0..5 {
        let id = host.open(None, bash()).await.unwrap();
        let pid = host.session(&id).unwrap().pid.unwrap();
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        eventually("it is dead or gone", || {
            host.session(&id).map_or(true, |info| info.pid.is_none())
        })
        .await;
        let next = host.open(None, bash()).await.unwrap();
        assert_eq!(host.sessions().len(), 1);
        host.close(&next, SessionEndReason::Asked).await.unwrap();
        assert_clean(&host.close(&id, SessionEndReason::Asked).await.unwrap());
    }
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r54_the_reaper_closes_who_is_idle_and_not_who_is_used() {
    let lines = Lines::default();
    let mut options = options();
    options.idle_after = Duration::from_millis(300);
    options.reap_every = Duration::from_millis(20);
    options.events = lines.events();
    let host = start(options).await;
    let idle = host.open(None, bash()).await.unwrap();
    let used = host.open(None, bash()).await.unwrap();
    let done = exec(&host, &used, "sleep 1; echo done").await;
    assert_eq!(done.outcome, ExecOutcome::Exited { status: 0 });
    let receipt = host.close(&idle, SessionEndReason::Asked).await.unwrap();
    assert_eq!(receipt.reason, SessionEndReason::Idle);
    assert_clean(&receipt);
    eventually("the other is idle, too", || host.sessions().is_empty()).await;
    let health = host.health();
    assert!(
        health.reaper.runs > 1 && health.reaper.closed == 2,
        "{health:?}"
    );
    assert!(health.reaper.last_run_at.is_some());
    assert_eq!(lines.of("session_close").len(), 2);
    assert!(lines.of("session_close")[0].contains(" reason=idle clean=true survivors=0 "));
    host.shut_down().await;
}
