//! Limits that the host watches itself.

use std::time::Duration;

use fdguard_host::host::{Host, LimitKeeper, LimitKeepers};
use fdguard_host::receipt::{SessionEndReason, SessionLimit};
use fdguard_host::session::{Exec, ExecOutcome};

use super::host_harness::{
    LONG, Lines, assert_clean, baseline, bash, eventually, options, say, start,
};

fn kept_by(host: &Host, id: &str) -> LimitKeepers {
    host.session(id).unwrap().limits_kept_by.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_processes_end_the_session_and_the_receipt_says_which_limit() {
    let lines = Lines::default();
    let mut options = options();
    options.watch_every = Duration::from_millis(50);
    options.events = lines.events();
    let host = start(options).await;
    let before = baseline(&host);
    let mut spec = bash();
    spec.limits.processes = Some(5);
    let id = host.open(None, spec).await.unwrap();
    assert_eq!(say(&host, &id, "echo few").await, "few");
    if kept_by(&host, &id).processes == Some(LimitKeeper::Cgroup) {
        refused_to_fork(&host, &id).await;
        return;
    }
    let mut many = Exec::new("echo begin; for i in 1 2 3 4 5 6 7 8; do sleep 100 & done; wait");
    many.timeout = LONG;
    let done = host.exec(&id, many, None).await.unwrap();
    assert_eq!(done.outcome, ExecOutcome::LimitReached);
    assert!(done.stdout.text.contains("begin"), "{done:?}");
    let receipt = host.close(&id, SessionEndReason::Asked).await.unwrap();
    assert_eq!(receipt.reason, SessionEndReason::Limit);
    assert_clean(&receipt);
    let overuse = receipt.overuse.unwrap();
    assert_eq!(
        (overuse.limit, overuse.allowed),
        (SessionLimit::Processes, 5)
    );
    assert!(overuse.used > 5);
    let line = &lines.of("limit_reached")[0];
    assert!(line.contains("limit=processes allowed=5 used="), "{line}");
    assert_eq!(baseline(&host), before);
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_much_memory_ends_the_session_although_nothing_runs_in_it() {
    let mut options = options();
    options.watch_every = Duration::from_millis(50);
    let host = start(options).await;
    let mut spec = bash();
    spec.limits.memory_bytes = Some(64 << 20);
    let id = host.open(None, spec).await.unwrap();
    assert_eq!(say(&host, &id, "echo little").await, "little");
    let is_kept_exactly = kept_by(&host, &id).memory == Some(LimitKeeper::Cgroup);
    // Each of the four holds 40 MB, which is less than the limit of a process; the command itself
    // ends before.
    let hold = "{ head -c 40000000 /dev/zero; sleep 100; } | tail -c 40000000 >/dev/null &";
    let grow = format!("{hold}\n{hold}\n{hold}\n{hold}\n");
    let answer = host.exec(&id, Exec::new(grow), None).await;
    eventually("it is ended", || host.sessions().is_empty()).await;
    let receipt = host.close(&id, SessionEndReason::Asked).await.unwrap();
    assert_eq!(receipt.reason, SessionEndReason::Limit, "{answer:?}");
    let overuse = receipt.overuse.unwrap();
    assert_eq!(
        (overuse.limit, overuse.allowed),
        (SessionLimit::Memory, 64 << 20)
    );
    // A cgroup limit cannot be exceeded.
    assert_eq!(overuse.used > 64 << 20, !is_kept_exactly, "{overuse:?}");
    assert_clean(&receipt);
    host.shut_down().await;
}

/// With a cgroup that limits the number of processes, the kernel refuses one more, and the session
/// stays.
async fn refused_to_fork(host: &Host, id: &str) {
    let mut many = Exec::new("for i in 1 2 3 4 5 6 7 8; do sleep 100 & done; echo no");
    many.timeout = LONG;
    let done = host.exec(id, many, None).await.unwrap();
    let said = format!("{done:?}");
    assert!(said.contains("Resource temporarily unavailable"), "{said}");
    let receipt = host.close(id, SessionEndReason::Asked).await.unwrap();
    assert_eq!(receipt.overuse, None);
    assert_clean(&receipt);
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_uses_the_memory_of_its_cgroup_up_is_told_so() {
    let host = start(options()).await;
    let mut spec = bash();
    spec.limits.memory_bytes = Some(64 << 20);
    let id = host.open(None, spec).await.unwrap();
    if kept_by(&host, &id).memory != Some(LimitKeeper::Cgroup) {
        testkit::skip("no cgroup keeps the memory here");
        return;
    }
    let mut greedy = Exec::new("head -c 100000000 /dev/zero | tail -c 100000000 | wc -c");
    greedy.timeout = LONG;
    let done = host.exec(&id, greedy, None).await.unwrap();
    assert_eq!(done.outcome, ExecOutcome::LimitReached, "{done:?}");
    let receipt = host.close(&id, SessionEndReason::Asked).await.unwrap();
    assert_eq!(receipt.overuse.unwrap().limit, SessionLimit::Memory);
    assert_clean(&receipt);
    host.shut_down().await;
}
