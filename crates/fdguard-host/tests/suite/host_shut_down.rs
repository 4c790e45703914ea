//! The end of a host.

use fdguard_host::receipt::SessionEndReason;
use fdguard_host::session::{Exec, ExecOutcome};

use super::host_harness::{
    Lines, assert_clean, bash, descriptors, eventually, lives, options, start,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_with_running_commands_ends_all_with_receipts_and_nothing_is_left() {
    let lines = Lines::default();
    let before = descriptors();
    let mut options = options();
    options.events = lines.events();
    let host = start(options).await;
    let mut running = Vec::new();
    let mut members = Vec::new();
    let commands = [
        "echo said; sleep 100",
        "trap '' INT TERM; echo said; while :; do sleep 0.01; done",
        "echo said; (setsid sleep 100 &); sleep 100",
    ];
    for code in commands {
        let id = host.open(None, bash()).await.unwrap();
        let (host, session) = (host.clone(), id.clone());
        let command = async move { host.exec(&session, Exec::new(code), None).await };
        running.push((id, tokio::spawn(command)));
    }
    let idle = host.open(None, bash()).await.unwrap();
    eventually("all run", || host.health().sessions.busy == 3).await;
    for info in host.sessions() {
        members.extend(host.members(&info.id).unwrap());
    }
    let (first, second) = tokio::join!(host.shut_down(), host.shut_down());
    assert_eq!(first, second);
    assert_eq!(first.len(), 4);
    first.iter().for_each(assert_clean);
    assert!(
        first
            .iter()
            .all(|receipt| receipt.reason == SessionEndReason::Shutdown)
    );
    assert!(first.iter().any(|receipt| receipt.session == idle));
    for (_, command) in running {
        let ended = command.await.unwrap();
        let by_itself =
            matches!(&ended, Ok(done) if matches!(done.outcome, ExecOutcome::Exited { .. }));
        assert!(!by_itself, "{ended:?}");
    }
    assert!(members.len() >= 4 && members.iter().all(|pid| !lives(*pid)));
    assert_eq!(host.open(None, bash()).await.unwrap_err().code(), "closing");
    assert_eq!(host.client(None, None).unwrap_err().code(), "closing");
    assert!(host.health().closing);
    assert_eq!(host.health().children, Some(0));
    assert_eq!(host.shut_down().await, first);
    assert_eq!(lines.of("session_close").len(), 4);
    assert_eq!(
        lines.of("shutdown_end"),
        ["fdguard_event event=shutdown_end sessions=4 unclean=0"]
    );
    drop(host);
    eventually("every descriptor is released", || {
        descriptors().is_subset(&before)
    })
    .await;
}

/// Regression: four of these were unclean, and processes survived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_stop_their_keepers_are_closed_clean() {
    let host = start(options()).await;
    let stops = "while :; do kill -STOP $PPID; done";
    let commands = [
        format!("({stops}) & sleep 0.1"),
        "(setsid bash -c 'trap \"\" TERM HUP; while :; do kill -STOP '$PPID'; done' &); sleep 0.1"
            .to_owned(),
        "kill -STOP $PPID".to_owned(),
    ];
    let mut members = Vec::new();
    for code in &commands {
        let id = host.open(None, bash()).await.unwrap();
        host.exec(&id, Exec::new(code.as_str()), None)
            .await
            .unwrap();
        members.extend(host.members(&id).unwrap());
    }
    let (first, rest) = (host.sessions()[0].id.clone(), commands.len() - 1);
    assert_clean(&host.close(&first, SessionEndReason::Asked).await.unwrap());
    let receipts = host.shut_down().await;
    assert_eq!(receipts.len(), rest);
    receipts.iter().for_each(assert_clean);
    assert!(members.len() >= 5, "{members:?}");
    assert!(members.iter().all(|pid| !lives(*pid)));
    assert_eq!(host.health().children, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_being_opened_while_the_host_ends_is_not_left() {
    for _ in 0..5 {
        let host = start(options()).await;
        let opening: Vec<_> = (0..4)
            .map(|_| {
                let host = host.clone();
                tokio::spawn(async move { host.open(None, bash()).await })
            })
            .collect();
        eventually("they have places", || host.health().sessions.open == 4).await;
        host.shut_down().await;
        for opened in opening {
            if let Err(error) = opened.await.unwrap() {
                assert_eq!(error.code(), "closing");
            }
        }
        let health = host.health();
        assert_eq!((health.sessions.open, health.children), (0, Some(0)));
    }
}
