//! One end, one receipt, and everything as before.

use fdguard_host::receipt::Reason;
use fdguard_host::session::{Exec, Outcome};
use futures_util::future::join_all;

use super::host_harness::{
    Lines, assert_clean, baseline, bash, bash_on_pipes, exec, options, say, start,
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
        tokio::spawn(async move { host.close(&id, Reason::Asked).await.unwrap() })
    });
    let receipts: Vec<_> = join_all(closes)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_clean(&receipts[0]);
    assert!(receipts.iter().all(|receipt| *receipt == receipts[0]));
    let later = host.close(&id, Reason::Shutdown).await.unwrap();
    assert_eq!(later, receipts[0]);
    assert_eq!(lines.of("session_close").len(), 1);
    assert_eq!(host.receipts(), [later]);
    let unknown = host.close("0", Reason::Asked).await.unwrap_err();
    assert_eq!(unknown.to_string(), "no session 0");
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_goes_on_although_its_caller_went_away() {
    let host = start(options()).await;
    let id = host.open(None, bash()).await.unwrap();
    let closing = {
        let (host, id) = (host.clone(), id.clone());
        tokio::spawn(async move { host.close(&id, Reason::Asked).await })
    };
    super::host_harness::eventually("it began", || {
        host.receipts().len() == 1 || closing.is_finished() || host.sessions().len() == 1
    })
    .await;
    closing.abort();
    let _aborted_or_done = closing.await;
    let receipt = host.close(&id, Reason::Shutdown).await.unwrap();
    assert_clean(&receipt);
    assert!(host.sessions().is_empty());
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_keeps_the_id_and_the_folder_with_a_new_program() {
    let host = start(options()).await;
    let id = host.open(None, bash()).await.unwrap();
    let before = host.session(&id).unwrap();
    assert_eq!(say(&host, &id, "cd /usr && X=1 && pwd").await, "/usr");
    let receipt = host.reset(&id).await.unwrap();
    assert_eq!(
        (receipt.reason, receipt.survivors),
        (Reason::Reset, Some(0))
    );
    let after = host.session(&id).unwrap();
    assert_ne!(before.pid, after.pid);
    assert_eq!(
        say(&host, &id, "echo \"$PWD:${X-gone}\"").await,
        "/usr:gone"
    );
    assert_eq!(host.sessions().len(), 1);
    assert_clean(&host.close(&id, Reason::Asked).await.unwrap());
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
    super::host_harness::eventually("it runs", || host.health().sessions.busy == 1).await;
    let second = host.exec(&id, Exec::new("true"), None).await.unwrap_err();
    assert_eq!(second.code(), "busy");
    assert!(host.session(&id).unwrap().busy_ms.is_some());
    assert!(host.interrupt(&id).await.unwrap());
    let first = first.await.unwrap().unwrap();
    assert_eq!(first.outcome, Outcome::Interrupted);
    assert!(!host.interrupt(&id).await.unwrap());
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r48_two_hundred_cycles_leave_descriptors_children_and_zombies_exactly_as_before() {
    let host = start(options()).await;
    let cycle = async |round: usize| {
        let spec = if round % 3 == 0 {
            bash_on_pipes()
        } else {
            bash()
        };
        let id = host.open(None, spec).await.unwrap();
        match round % 5 {
            0 => assert_eq!(
                exec(&host, &id, "exit 3").await.outcome,
                Outcome::ProgramEnded { status: Some(3) }
            ),
            1 => assert_eq!(
                say(&host, &id, "(setsid sleep 100 &) ; echo away").await,
                "away"
            ),
            2 => {
                let mut command = Exec::new("sleep 100");
                command.timeout = std::time::Duration::from_millis(5);
                let done = host.exec(&id, command, None).await.unwrap();
                assert_eq!(done.outcome, Outcome::TimedOut);
            }
            _ => assert_eq!(say(&host, &id, "echo $((6 * 7))").await, "42"),
        }
        assert_clean(&host.close(&id, Reason::Asked).await.unwrap());
    };
    for round in 0..5 {
        cycle(round).await;
    }
    let before = baseline(&host);
    let threads = host.health().thread_count;
    for round in 0..200 {
        cycle(round).await;
    }
    assert_eq!(baseline(&host), before);
    // Two workers, the main thread; a pool of blocking threads may breathe, but not grow with sessions.
    let now = host.health().thread_count;
    assert!(
        now <= threads.map(|threads| threads + 2),
        "{threads:?} {now:?}"
    );
    host.shut_down().await;
}
