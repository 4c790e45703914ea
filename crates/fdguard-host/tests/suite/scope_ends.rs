//! Which processes a scope ends, and which it spares.

use std::fs;
use std::os::unix::fs::symlink;

use fdguard_host::scope::{
    CleanUpAction, CloseLimits, CloseReason, FileEnd, Kind, Ownership, ResourceRole,
};
use fdguard_proc::ProcessId;

use super::scope_harness::{Ground, heard, line, lives, of_file, only, shell, stranger, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_with_the_same_number_and_another_start_is_not_touched() {
    let ground = Ground::new();
    let scope = ground.scope();
    let mut other = stranger(&[]);
    let own = ProcessId::read(other.id()).unwrap();
    let start = own.start - 1;
    let earlier = ProcessId { start, ..own };
    scope
        .take_process(earlier, Ownership::Owned, ResourceRole::Main)
        .unwrap();
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(clean_up.success);
    assert_eq!(only(&clean_up, Kind::Process).did, CleanUpAction::Absent);
    assert!(lives(other.id()));
    other.kill().unwrap();
    other.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r56_what_is_lent_is_left_alone() {
    let ground = Ground::new();
    let scope = ground.scope();
    let mut other = stranger(&[]);
    let identity = ProcessId::read(other.id()).unwrap();
    scope
        .take_process(identity, Ownership::Lent, ResourceRole::Main)
        .unwrap();
    scope
        .take_session("theirs", Ownership::Lent, ResourceRole::Helper)
        .unwrap();
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(clean_up.success, "{clean_up:#?}");
    assert!(
        clean_up
            .resources
            .iter()
            .all(|it| it.did == CleanUpAction::Kept)
    );
    assert!(lives(other.id()));
    other.kill().unwrap();
    other.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_we_nor_the_first_process_can_be_given_to_a_scope() {
    let ground = Ground::new();
    let scope = ground.scope();
    for pid in [std::process::id(), 1] {
        let identity = ProcessId::read(pid).unwrap();
        let taken = scope.take_process(identity, Ownership::Owned, ResourceRole::Main);
        assert!(taken.is_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r49_a_leftover_fails_it_and_is_ended_where_that_is_wanted() {
    let ground = Ground::new();
    for is_ended in [false, true] {
        let scope = ground.scope();
        let mut lost = stranger(&scope.environment());
        let mut how = CloseLimits::default();
        how.end_leftovers = is_ended;
        let clean_up = scope.close(CloseReason::Asked, how).await;
        assert_eq!(clean_up.success, is_ended, "{clean_up:#?}");
        let found = &clean_up.look.as_ref().unwrap().leftovers;
        if is_ended {
            assert_eq!(only(&clean_up, Kind::Leftover).did, CleanUpAction::Ended);
            assert!(found.is_empty());
        } else {
            assert_eq!((found[0].pid, found[0].comm.as_str()), (lost.id(), "sleep"));
            assert!(lives(lost.id()));
            lost.kill().unwrap();
        }
        lost.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r49_a_keeper_that_was_killed_is_told_of_and_its_processes_are_found() {
    let ground = Ground::new();
    let scope = ground.scope();
    let (program, out) = heard(shell("setsid sleep 1000 & echo $!; exec sleep 1000"));
    let taken = scope.start(program, ResourceRole::Main).await.unwrap();
    let far: u32 = line(&out).await.parse().unwrap();
    until("it has its own environment", || {
        fs::read(format!("/proc/{far}/comm")).is_ok_and(|comm| comm == b"sleep\n")
    })
    .await;
    let keeper = fdguard_proc::process::stat(taken.pid.unwrap(), |stat| stat.ppid).unwrap();
    let keeper = fdguard_proc::ProcKey::read(keeper).unwrap();
    keeper.signal(rustix::process::Signal::KILL).unwrap();
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(!clean_up.success, "nobody proved that nothing is left");
    assert!(
        only(&clean_up, Kind::Program)
            .error
            .as_ref()
            .unwrap()
            .contains("keeper")
    );
    assert!(
        clean_up.look.as_ref().unwrap().leftovers.is_empty(),
        "{clean_up:#?}"
    );
    until("its end", || !lives(far)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r52_a_link_that_leads_out_is_refused_and_what_it_leads_to_is_whole() {
    let ground = Ground::new();
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "s").unwrap();
    let scope = ground.scope();
    let out = ["../x", "/etc/passwd", "a/../../b", ""];
    for path in out {
        assert!(
            scope.take_file(path.as_ref(), FileEnd::Delete).is_err(),
            "{path}"
        );
    }
    scope.take_prompt("folder/secret".as_ref()).unwrap();
    scope.take_prompt("link".as_ref()).unwrap();
    scope.take_log("log".as_ref()).unwrap();
    // Create the links only after the names were checked.
    symlink(outside.path(), ground.dir.path().join("folder")).unwrap();
    symlink(&secret, ground.dir.path().join("link")).unwrap();
    symlink(&secret, ground.dir.path().join("log")).unwrap();
    let scratch = scope.make_directory("scratch").unwrap();
    fs::remove_dir(&scratch).unwrap();
    symlink(outside.path(), &scratch).unwrap();
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(!clean_up.success);
    for name in ["folder/secret", "link", "log"] {
        let refused = of_file(&clean_up, name);
        assert!(
            !refused.ok && refused.did == CleanUpAction::Kept,
            "{refused:?}"
        );
        assert!(
            refused.error.as_ref().unwrap().contains("is outside"),
            "{refused:?}"
        );
        assert!(!refused.details.tried_twice);
    }
    assert!(!only(&clean_up, Kind::Directory).ok);
    assert_eq!(fs::read_to_string(secret).unwrap(), "s");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_link_in_a_dir_leads_to_is_not_deleted_with_the_dir() {
    let ground = Ground::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "s").unwrap();
    let scope = ground.scope();
    let scratch = scope.make_directory("scratch").unwrap();
    symlink(outside.path(), scratch.join("out")).unwrap();
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(clean_up.success, "{clean_up:#?}");
    assert!(!scratch.exists() && outside.path().join("secret").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_with_odd_bytes_are_handled() {
    use std::os::unix::ffi::OsStrExt as _;
    let ground = Ground::new();
    let scope = ground.scope();
    for name in [&b"a b\n'\""[..], b"\xff\xfe", b"-rf"] {
        let path = ground.dir.path().join(std::ffi::OsStr::from_bytes(name));
        fs::write(&path, "x").unwrap();
        scope.take_prompt(&path).unwrap();
    }
    let clean_up = scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
    assert!(clean_up.success, "{clean_up:#?}");
    assert_eq!(fs::read_dir(ground.dir.path()).unwrap().count(), 0);
    serde_json::to_string(&*clean_up).unwrap();
}
