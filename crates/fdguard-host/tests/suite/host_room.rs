//! A host with a nearly full descriptor table: it refuses cleanly, and closing works.

use std::fs::File;
use std::os::fd::OwnedFd;

use fdguard_host::Error;
use fdguard_host::host::{Host, HostStatus};
use fdguard_host::receipt::SessionEndReason;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::host_harness::{assert_clean, baseline, bash, options, say, start};

/// Sets this process's soft limit.
fn limit(soft: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(soft);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

/// Opens descriptors until this many are open.
fn fill(host: &Host, until: u64) -> Vec<OwnedFd> {
    let null = OwnedFd::from(File::open("/dev/null").unwrap());
    let mut held = Vec::new();
    while host.health().fd_count.unwrap() < until {
        held.push(null.try_clone().unwrap());
    }
    held.push(null);
    assert_eq!(host.health().fd_count, Some(until));
    held
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r12_new_sessions_are_refused_from_ninety_percent_on_and_old_ones_work() {
    limit(200);
    let host = start(options()).await;
    let id = host.open(None, bash()).await.unwrap();
    let before = baseline(&host);
    assert_eq!(host.health().status, HostStatus::Ok);
    let filled = fill(&host, 145);
    assert_eq!(host.health().status, HostStatus::Warning);
    let more = fill(&host, 180);
    let health = host.health();
    assert_eq!(
        (health.status, health.fd_usage_percent),
        (HostStatus::Critical, Some(90.0))
    );
    let full = baseline(&host);
    let error = host.open(None, bash()).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::NoRoom {
                used: 180,
                limit: 200
            }
        ),
        "{error}"
    );
    assert_eq!(error.code(), "no-room");
    assert_eq!(baseline(&host), full, "everything of it is released");
    assert_eq!(host.health().sessions.open, 1);
    assert_eq!(say(&host, &id, "echo works").await, "works");
    drop((filled, more));
    assert_eq!(baseline(&host), before);
    let next = host.open(None, bash()).await.unwrap();
    host.close(&next, SessionEndReason::Asked).await.unwrap();
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_used_reset_and_closed_although_the_table_is_full() {
    limit(128);
    let host = start(options()).await;
    let start_of_all = baseline(&host);
    let id = host.open(None, bash()).await.unwrap();
    let filled = fill(&host, 122);
    assert_eq!(say(&host, &id, "echo at 95 %").await, "at 95 %");
    // Either it works, or it is refused and the session can still be closed.
    if let Err(error) = host.reset(&id).await {
        assert!(
            matches!(error.code(), "start-failed" | "io" | "no-room"),
            "{error}"
        );
    }
    let mut rest = Vec::new();
    while let Ok(more) = filled[0].try_clone() {
        rest.push(more);
    }
    let receipt = host.close(&id, SessionEndReason::Asked).await.unwrap();
    assert_clean(&receipt);
    drop((filled, rest));
    assert_eq!(baseline(&host), start_of_all);
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r59_health_has_the_fields_that_people_watch_and_counts_only() {
    let host = start(options()).await;
    let client = host.client(None, None).unwrap();
    let id = host.open(Some(&client), bash()).await.unwrap();
    let health = serde_json::to_value(host.health()).unwrap();
    assert_eq!(health["schema"], "fdguard.health/1");
    assert_eq!(health["status"], "ok");
    for name in [
        "fd_count",
        "fd_soft_limit",
        "fd_usage_percent",
        "thread_count",
    ] {
        assert!(health[name].is_number(), "{name}: {health}");
    }
    assert!(health["fd_highest"].as_u64() > Some(2));
    // The session's keeper.
    assert_eq!(
        (&health["children"], &health["zombies"]),
        (&1.into(), &0.into())
    );
    assert_eq!(health["sessions"]["open"], 1);
    assert_eq!(
        (&health["sessions"]["cap"], &health["clients"]),
        (&32.into(), &1.into())
    );
    assert!(!health.to_string().contains(&id), "no names");
    host.shut_down().await;
}
