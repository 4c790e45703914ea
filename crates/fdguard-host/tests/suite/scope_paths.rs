//! A scope is closed on every path, once.

use std::sync::Arc;
use std::time::Duration;

use fdguard_files::Registry;
use fdguard_files::registry::{Owner, RowFilter, RowState};
use fdguard_host::Error;
use fdguard_host::scope::{
    CleanUpAction, CloseLimits, CloseReason, FileEnd, Kind, Ownership, ResourceRole, ScopePhase,
    ScopeSpec, Scopes, StartResource,
};
use fdguard_proc::ProcessId;

use super::host_harness::bash;
use super::scope_harness::{
    Ground, children, descriptors, heard, line, lives, pair, plan, shell, threads, until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r56_many_closers_one_clean_up() {
    let (ground, host) = Ground::with_host(32).await;
    let scope = Arc::new(ground.scope());
    scope
        .open_session(bash(), ResourceRole::Main)
        .await
        .unwrap();
    scope
        .start(plan(&["sleep", "1000"]), ResourceRole::Main)
        .await
        .unwrap();
    let closers = (0..5).map(|_| {
        let scope = Arc::clone(&scope);
        tokio::spawn(async move {
            scope
                .close(CloseReason::Asked, CloseLimits::default())
                .await
        })
    });
    let results = futures_util::future::join_all(closers).await;
    let first = results[0].as_ref().unwrap();
    assert!(first.success, "{first:#?}");
    for result in &results {
        assert!(Arc::ptr_eq(result.as_ref().unwrap(), first));
    }
    let again = scope
        .close(CloseReason::Shutdown, CloseLimits::default())
        .await;
    assert!(Arc::ptr_eq(&again, first), "also later");
    assert_eq!(host.receipts().len(), 1);
    until("the event", || ground.closed_events().len() == 1).await;
    assert_eq!(scope.phase(), ScopePhase::Closed);
    let refused = scope.take_prompt("x".as_ref()).unwrap_err();
    assert_eq!(refused.code(), "ended");
    let refused = scope
        .start(plan(&["true"]), ResourceRole::Main)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), "ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_clean_ups_in_parallel_take_no_longer_than_one() {
    let ground = Ground::new();
    let scopes = Scopes::new(ground.means());
    for number in 0..5 {
        let scope = scopes.create(ground.spec()).unwrap();
        let stubborn = "trap '' TERM; echo ready; while :; do sleep 1000; done";
        let (program, out) = heard(shell(stubborn));
        scope.start(program, ResourceRole::Main).await.unwrap();
        assert_eq!(line(&out).await, "ready");
        scope
            .take_log(&ground.file(&format!("log-{number}"), "x\n"))
            .unwrap();
        scope
            .take_prompt(&ground.file(&format!("prompt-{number}"), "x"))
            .unwrap();
    }
    let begin = std::time::Instant::now();
    let ends = scopes.shut_down(CloseLimits::default()).await;
    let took = begin.elapsed();
    assert_eq!(ends.len(), 5);
    assert!(ends.iter().all(|end| end.success), "{ends:#?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    let archive = ground.dir.path().join("archive");
    assert_eq!(std::fs::read_dir(archive).unwrap().count(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r47_an_owner_that_lets_go_leaves_nothing() {
    let ground = Ground::new();
    let scope = ground.scope();
    let taken = scope
        .start(plan(&["sleep", "1000"]), ResourceRole::Main)
        .await
        .unwrap();
    scope.take_log(&ground.file("log", "x\n")).unwrap();
    drop(scope);
    until("the end", || !ground.closed_events().is_empty()).await;
    let clean_up = &ground.closed_events()[0];
    assert!(clean_up.success, "{clean_up:#?}");
    assert_eq!(clean_up.reason, CloseReason::OwnerGone);
    assert!(!lives(taken.pid.unwrap()));
    assert!(ground.dir.path().join("archive/log").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r47_an_owner_that_panics_leaves_nothing() {
    let ground = Ground::new();
    let scopes = Scopes::new(ground.means());
    let scope = scopes.create(ground.spec()).unwrap();
    let taken = scope
        .start(plan(&["sleep", "1000"]), ResourceRole::Main)
        .await
        .unwrap();
    let guard = scopes.guard(&scope);
    let owner = tokio::spawn(async move {
        let _guard = guard;
        panic!("a bug of the owner");
    });
    assert!(owner.await.unwrap_err().is_panic());
    let clean_up = scope.closed().await;
    assert_eq!(
        (clean_up.reason, clean_up.success),
        (CloseReason::OwnerGone, true)
    );
    assert!(!lives(taken.pid.unwrap()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r56_a_closer_that_goes_away_does_not_leave_half_of_it() {
    let ground = Ground::new();
    let scope = Arc::new(ground.scope());
    let (program, out) = heard(shell(
        "trap '' TERM; echo ready; while :; do sleep 1000; done",
    ));
    scope.start(program, ResourceRole::Main).await.unwrap();
    assert_eq!(line(&out).await, "ready");
    scope.take_prompt(&ground.file("prompt", "p")).unwrap();
    let close = scope.close(CloseReason::Asked, CloseLimits::default());
    assert!(
        tokio::time::timeout(Duration::from_millis(20), close)
            .await
            .is_err()
    );
    assert_eq!(scope.phase(), ScopePhase::Closing);
    let clean_up = scope.closed().await;
    assert!(clean_up.success, "{clean_up:#?}");
    assert!(!ground.dir.path().join("prompt").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r47_when_the_third_cannot_start_the_first_two_are_released() {
    let ground = Ground::new();
    let scopes = Scopes::new(ground.means());
    let (socket, mut peer) = pair();
    let wants = vec![
        StartResource::Program(Box::new(plan(&["sleep", "1000"])), ResourceRole::Main),
        StartResource::Socket("control".to_owned(), socket),
        StartResource::File(ground.file("prompt", "p"), FileEnd::Delete),
        StartResource::Program(
            Box::new(plan(&["no-such-program-anywhere"])),
            ResourceRole::Main,
        ),
        StartResource::Directory("never".to_owned()),
    ];
    let started = scopes
        .create_with(ground.spec(), wants, CloseLimits::default())
        .await;
    let failed = started.unwrap().unwrap_err();
    assert_eq!((failed.at, failed.error.code()), (4, "start-failed"));
    assert!(
        failed.to_string().contains("no-such-program-anywhere"),
        "{failed}"
    );
    assert!(failed.clean_up.success, "{failed:#?}");
    assert_eq!(failed.clean_up.reason, CloseReason::StartFailed);
    let did: Vec<CleanUpAction> = failed.clean_up.resources.iter().map(|it| it.did).collect();
    assert_eq!(
        did,
        [
            CleanUpAction::Ended,
            CleanUpAction::Closed,
            CleanUpAction::Deleted
        ]
    );
    use std::io::Read as _;
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    assert_eq!(children(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r47_a_session_that_cannot_be_opened_is_a_failed_start() {
    let (ground, _host) = Ground::with_host(0).await;
    let scopes = Scopes::new(ground.means());
    let wants = vec![
        StartResource::Program(Box::new(plan(&["sleep", "1000"])), ResourceRole::Main),
        StartResource::Session(bash(), ResourceRole::Main),
    ];
    let started = scopes
        .create_with(ground.spec(), wants, CloseLimits::default())
        .await;
    let failed = started.unwrap().unwrap_err();
    assert_eq!((failed.at, failed.error.code()), (2, "full"));
    assert_eq!(children(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r47_scopes_end_with_their_client_and_with_the_host() {
    let ground = Ground::new();
    let scopes = Scopes::new(ground.means());
    let of = |client: Option<&str>| ScopeSpec {
        client: client.map(str::to_owned),
        ..ground.spec()
    };
    let gone = scopes.create(of(Some("gone"))).unwrap();
    let stays = scopes.create(of(Some("stays"))).unwrap();
    for scope in [&gone, &stays] {
        scope
            .start(plan(&["sleep", "1000"]), ResourceRole::Main)
            .await
            .unwrap();
    }
    let ends = scopes.close_client("gone", CloseLimits::default()).await;
    assert_eq!(ends.len(), 1);
    assert_eq!(
        (ends[0].scope.as_str(), ends[0].reason),
        (gone.id(), CloseReason::ClientGone)
    );
    assert_eq!(stays.phase(), ScopePhase::Open);
    assert_eq!(children(), 1, "one keeper");
    let ends = scopes.shut_down(CloseLimits::default()).await;
    assert_eq!((ends.len(), ends[0].reason), (1, CloseReason::Shutdown));
    assert_eq!(children(), 0);
    assert!(matches!(scopes.create(of(None)), Err(Error::Closing)));
    assert!(scopes.shut_down(CloseLimits::default()).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r51_the_registry_knows_who_closes_a_scope_and_what_it_came_to() {
    let ground = Ground::new();
    let registry = Registry::open(&ground.dir.path().join("registry.db")).unwrap();
    let mut means = ground.means();
    means.registry = Some(registry.clone());
    let scopes = Scopes::new(means);
    let fine = scopes.create(ground.spec()).unwrap();
    fine.take_prompt(&ground.file("prompt", "p")).unwrap();
    let failed = scopes.create(ground.spec()).unwrap();
    failed
        .take_prompt(&ground.dir.path().join("archive"))
        .unwrap();
    std::fs::create_dir(ground.dir.path().join("archive")).unwrap();
    for scope in [&fine, &failed] {
        let clean_up = scope
            .close(CloseReason::Asked, CloseLimits::default())
            .await;
        assert!(clean_up.errors.is_empty(), "{clean_up:#?}");
        let row = registry.get(scope.id()).unwrap().unwrap();
        let expected = if clean_up.success {
            RowState::Closed
        } else {
            RowState::Failed
        };
        assert_eq!(
            (row.state, row.reason.as_deref()),
            (expected, Some("asked"))
        );
        assert_eq!(row.files.len(), 1);
        assert_eq!(row.receipt.unwrap()["schema"], "fdguard.cleanup/1");
    }
    assert!(fine.result().unwrap().success && !failed.result().unwrap().success);
    // Another owner is closing it already: that is reported, and this host's resources are still
    // released.
    let claimed = scopes.create(ground.spec()).unwrap();
    let taken = claimed
        .start(plan(&["sleep", "1000"]), ResourceRole::Main)
        .await
        .unwrap();
    until("its entry", || {
        registry.get(claimed.id()).unwrap().is_some()
    })
    .await;
    let owner = Owner {
        name: "another".to_owned(),
        process: ProcessId::read(1).unwrap(),
    };
    registry.begin_closing(claimed.id(), &owner).unwrap();
    let clean_up = claimed
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(clean_up.success && !lives(taken.pid.unwrap()));
    assert_eq!(clean_up.errors.len(), 1, "{clean_up:#?}");
    let row = registry.get(claimed.id()).unwrap().unwrap();
    assert_eq!(
        row.state,
        RowState::Closing,
        "that is the other one's to say"
    );
}

#[test]
fn r47_a_runtime_that_ends_takes_its_programs_with_it() {
    let ground = Ground::new();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let (scope, pid) = runtime.block_on(async {
        let scope = ground.scope();
        let taken = scope
            .start(plan(&["sleep", "1000"]), ResourceRole::Main)
            .await
            .unwrap();
        scope.take_log(&ground.file("log", "x\n")).unwrap();
        (scope, taken.pid.unwrap())
    });
    drop(runtime);
    assert!(!lives(pid), "the task that kept it is gone");
    // Without the runtime it cannot be closed: files stay, nothing hangs.
    drop(scope);
    assert!(ground.dir.path().join("log").exists());
    assert_eq!(children(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r48_a_program_that_ends_by_itself_gives_its_descriptors_back_at_once() {
    let ground = Ground::new();
    let scope = ground.scope();
    let before = descriptors();
    scope
        .start(plan(&["sleep", "1000"]), ResourceRole::Main)
        .await
        .unwrap();
    assert_eq!(descriptors(), before + 1, "a program costs one");
    let taken = scope
        .start(plan(&["cat", "/dev/null"]), ResourceRole::Helper)
        .await
        .unwrap();
    let with_one = |pid| scope.view().resources.iter().all(|it| it.pid != pid);
    until("its end is seen", || with_one(taken.pid)).await;
    until("one tree is left", || children() == 1).await;
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(clean_up.success);
    until("all are given back", || descriptors() == before).await;
}

#[test]
fn r47_after_a_hundred_scopes_everything_is_as_before() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_keep_alive(Duration::from_millis(50))
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (ground, host) = Ground::with_host(32).await;
        let scopes = Scopes::keeping(ground.means(), Duration::ZERO);
        // No blocking thread has started yet.
        let workers = threads();
        round(&ground, &scopes, 0).await;
        let before = (descriptors(), children());
        for number in 1..=100 {
            round(&ground, &scopes, number).await;
        }
        until("the baseline", || (descriptors(), children()) == before).await;
        assert!(scopes.list().is_empty(), "results are forgotten");
        until("threads that may block have ended", || threads() == workers).await;
        assert!(host.sessions().is_empty());
    });
}

/// One of five ways of an end in turn.
async fn round(ground: &Ground, scopes: &Scopes, number: usize) {
    let scope = scopes.create(ground.spec()).unwrap();
    scope
        .open_session(bash(), ResourceRole::Main)
        .await
        .unwrap();
    let script = if number.is_multiple_of(2) {
        "exec sleep 1000"
    } else {
        "sleep 1000 & exit 3"
    };
    scope
        .start(shell(script), ResourceRole::Main)
        .await
        .unwrap();
    scope
        .take_prompt(&ground.file(&format!("prompt-{number}"), "p"))
        .unwrap();
    scope.make_directory("scratch").unwrap();
    scope.take_socket("s", pair().0).unwrap();
    match number % 5 {
        0 => drop(
            scope
                .close(CloseReason::Asked, CloseLimits::default())
                .await,
        ),
        1 => drop(scopes.guard(&scope)),
        2 => {
            let bad = StartResource::Program(Box::new(plan(&["/no/such"])), ResourceRole::Main);
            scope
                .take_all(vec![bad], CloseLimits::default())
                .await
                .unwrap_err();
        }
        3 => drop(
            scope
                .close_soon(Duration::from_millis(1), CloseLimits::default())
                .unwrap(),
        ),
        _ => {
            scope
                .take_session("gone", Ownership::Owned, ResourceRole::Helper)
                .unwrap();
            drop(
                scopes
                    .close(scope.id(), CloseLimits::default(), &[1], Duration::ZERO)
                    .await,
            );
        }
    }
    let clean_up = scope.closed().await;
    assert!(clean_up.success, "{clean_up:#?}");
    let programs = clean_up
        .resources
        .iter()
        .filter(|it| it.kind == Kind::Program);
    assert_eq!(programs.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scope_that_cannot_be_made_is_in_no_registry() {
    let ground = Ground::new();
    let path = ground.dir.path().join("registry.db");
    let registry = Registry::open(&path).unwrap();
    let mut means = ground.means();
    means.registry = Some(registry.clone());
    let mut spec = ground.spec();
    spec.root = "/no/such/folder".into();
    Scopes::new(means).create(spec).unwrap_err();
    assert_eq!(registry.list(&RowFilter::default()).unwrap(), []);
}
