//! What a close does with each resource of a scope.

use std::fs;
use std::io::Read as _;
use std::time::{Duration, Instant};

use fdguard_host::scope::{
    CleanUpAction, CloseLimits, CloseReason, FileEnd, Kind, Ownership, ResourceRole,
};
use fdguard_proc::ProcessId;

use super::host_harness::bash;
use super::scope_harness::{
    Ground, heard, leave, line, lives, of_file, only, pair, plan, shell, stranger,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r47_everything_that_an_agent_holds_is_released() {
    let (ground, host) = Ground::with_host(32).await;
    let scope = ground.scope();
    scope
        .open_session(bash(), ResourceRole::Main)
        .await
        .unwrap();
    let script = "sleep 1000 & echo ready; exec sleep 1000";
    let (program, out) = heard(shell(script));
    let program = scope.start(program, ResourceRole::Main).await.unwrap();
    assert_eq!(line(&out).await, "ready");
    let mut other = stranger(&[]);
    let identity = ProcessId::read(other.id()).unwrap();
    scope
        .take_process(identity, Ownership::Owned, ResourceRole::Helper)
        .unwrap();
    scope.take_log(&ground.file("log.jsonl", "{}\n")).unwrap();
    scope.take_prompt(&ground.file("prompt", "do")).unwrap();
    scope
        .take_file(&ground.file("kept", "k"), FileEnd::Keep)
        .unwrap();
    let dir = scope.make_directory("scratch").unwrap();
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/b/c"), "x").unwrap();
    let (socket, mut peer) = pair();
    scope.take_socket("control", socket).unwrap();
    let (end, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    scope.take_descriptor("pipe", writer).unwrap();

    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(clean_up.success, "{clean_up:#?}");
    assert_eq!(only(&clean_up, Kind::Session).did, CleanUpAction::Ended);
    let ended = only(&clean_up, Kind::Program);
    assert_eq!(
        (ended.did, ended.details.survivors.as_deref()),
        (CleanUpAction::Ended, Some(&[][..]))
    );
    assert_eq!(ended.details.exit.as_deref(), Some("signal 15"));
    assert_eq!(ended.details.reaped, Some(1), "the one in the background");
    assert_eq!(only(&clean_up, Kind::Process).did, CleanUpAction::Ended);
    let log = of_file(&clean_up, "log.jsonl");
    assert_eq!(log.did, CleanUpAction::Archived);
    assert_eq!(log.details.archive.as_ref().unwrap()["lines"], 1);
    assert_eq!(of_file(&clean_up, "prompt").did, CleanUpAction::Deleted);
    assert_eq!(of_file(&clean_up, "kept").did, CleanUpAction::Kept);
    assert_eq!(only(&clean_up, Kind::Directory).did, CleanUpAction::Deleted);
    assert_eq!(only(&clean_up, Kind::Socket).did, CleanUpAction::Closed);
    assert_eq!(only(&clean_up, Kind::Descriptor).did, CleanUpAction::Closed);

    assert!(!lives(program.pid.unwrap()));
    assert!(!other.wait().unwrap().success());
    assert!(host.sessions().is_empty());
    let at = |name: &str| ground.dir.path().join(name).exists();
    assert!(at("archive/log.jsonl") && at("kept"));
    assert!(!at("log.jsonl") && !at("prompt") && !dir.exists());
    assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the peer sees the end");
    assert_eq!(fs::File::from(end).read(&mut [0]).unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r49_what_is_absent_counts_as_done() {
    let (ground, host) = Ground::with_host(32).await;
    let scope = ground.scope();
    let id = scope
        .open_session(bash(), ResourceRole::Main)
        .await
        .unwrap();
    leave(&host, &id).await;
    scope
        .take_log(&ground.dir.path().join("never-written"))
        .unwrap();
    scope.take_prompt("no/such/folder/prompt".as_ref()).unwrap();
    let dir = scope.make_directory("scratch").unwrap();
    fs::remove_dir(dir).unwrap();
    let mut gone = stranger(&[]);
    let identity = ProcessId::read(gone.id()).unwrap();
    gone.kill().unwrap();
    gone.wait().unwrap();
    scope
        .take_process(identity, Ownership::Owned, ResourceRole::Helper)
        .unwrap();
    let program = scope
        .start(plan(&["true"]), ResourceRole::Helper)
        .await
        .unwrap();
    super::scope_harness::until("its end", || !lives(program.pid.unwrap())).await;

    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(clean_up.success, "{clean_up:#?}");
    for outcome in &clean_up.resources {
        let may_be_ended = outcome.kind == Kind::Program;
        assert!(
            outcome.did == CleanUpAction::Absent || may_be_ended,
            "{outcome:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r49_a_whole_dir_that_is_gone_is_no_failure() {
    let ground = Ground::new();
    let scope = ground.scope();
    scope.take_log(&ground.file("log", "x\n")).unwrap();
    scope.make_directory("scratch").unwrap();
    fs::remove_dir_all(ground.dir.path()).unwrap();
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(clean_up.success, "{clean_up:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r49_three_that_do_not_want_to_end_are_gone_within_five_seconds() {
    let ground = Ground::new();
    let scope = ground.scope();
    let script = r#"
        trap '' TERM
        (trap '' TERM HUP; echo $BASHPID; while :; do sleep 1000; done) &
        setsid bash -c "trap '' TERM; echo \$\$; while :; do sleep 1000; done" &
        (setsid bash -c "trap '' TERM; echo \$\$; while :; do sleep 1000; done" & )
        while :; do sleep 1000; done
    "#;
    let (program, out) = heard(shell(script));
    scope.start(program, ResourceRole::Main).await.unwrap();
    let mut pids = Vec::new();
    for _ in 0..3 {
        pids.push(line(&out).await.parse::<u32>().unwrap());
    }
    scope.take_prompt(&ground.file("prompt", "p")).unwrap();
    let begin = Instant::now();
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    let took = begin.elapsed();
    assert!(clean_up.success, "{clean_up:#?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    let ended = only(&clean_up, Kind::Program);
    assert!(ended.details.killed >= Some(4), "{ended:?}");
    assert!(pids.iter().all(|pid| !lives(*pid)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r49_an_archive_that_cannot_be_made_keeps_the_file_and_stops_nothing() {
    let ground = Ground::new();
    let mut spec = ground.spec();
    // A file occupies the path of the directory, which stops root, too.
    spec.archive_to = Some(ground.file("occupied", "").join("archive"));
    let means = std::sync::Arc::new(ground.means());
    let scope = fdguard_host::scope::Scope::new(spec, means).unwrap();
    let log = ground.file("log.jsonl", "evidence\n");
    scope.take_log(&log).unwrap();
    scope.take_prompt(&ground.file("prompt", "p")).unwrap();
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(!clean_up.success);
    let failed = of_file(&clean_up, "log.jsonl");
    assert_eq!((failed.ok, failed.did), (false, CleanUpAction::Kept));
    assert!(
        failed.error.as_ref().unwrap().contains("log.jsonl"),
        "{failed:?}"
    );
    assert!(failed.details.tried_twice);
    assert_eq!(fs::read_to_string(log).unwrap(), "evidence\n");
    assert_eq!(of_file(&clean_up, "prompt").did, CleanUpAction::Deleted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r50_what_an_archive_left_in_the_middle_is_archived() {
    let ground = Ground::new();
    let scope = ground.scope();
    scope.take_log(&ground.dir.path().join("log")).unwrap();
    // So a host that was killed leaves it.
    ground.file("log.closing", "line\n");
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(clean_up.success, "{clean_up:#?}");
    let archived = ground.dir.path().join("archive/log");
    assert_eq!(fs::read_to_string(archived).unwrap(), "line\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r50_a_file_under_a_lock_is_an_error_and_the_others_go_on() {
    let ground = Ground::new();
    let scope = ground.scope();
    let locked = ground.file("locked.jsonl", "1\n");
    let holder = fs::File::open(&locked).unwrap();
    holder.lock().unwrap();
    scope.take_log(&locked).unwrap();
    scope.take_log(&ground.file("free.jsonl", "2\n")).unwrap();
    scope.take_prompt(&ground.file("prompt", "p")).unwrap();
    let mut how = CloseLimits::default();
    how.archive_wait = Duration::from_millis(50);
    let clean_up = scope.close(CloseReason::Asked, how).await;
    assert!(!clean_up.success);
    assert!(of_file(&clean_up, "locked.jsonl").error.is_some());
    assert_eq!(
        of_file(&clean_up, "free.jsonl").did,
        CleanUpAction::Archived
    );
    assert_eq!(of_file(&clean_up, "prompt").did, CleanUpAction::Deleted);
    assert!(locked.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r50_files_come_after_the_last_process_that_writes_them() {
    let ground = Ground::new();
    let scope = ground.scope();
    let log = ground.file("log", "");
    // It flushes only when asked to end.
    let script = format!(
        "exec 3>>'{}'; trap 'sleep 0.2; echo last >&3; exit 0' TERM; echo ready; while :; do sleep 0.05; done",
        log.display()
    );
    let (program, out) = heard(shell(&script));
    scope.start(program, ResourceRole::Main).await.unwrap();
    assert_eq!(line(&out).await, "ready");
    scope.take_log(&log).unwrap();
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(clean_up.success, "{clean_up:#?}");
    let archived = ground.dir.path().join("archive/log");
    assert_eq!(fs::read_to_string(archived).unwrap(), "last\n");
}
