//! Sessions that the warm interpreter forks ahead of requests.

use futures_util::future::join_all;
use rustix::process::{Pid, Signal, kill_process};

use super::warm_harness::{Session, ahead, gone, held, pool};

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

#[tokio::test]
async fn the_next_session_is_the_one_that_waits_and_another_takes_its_place() {
    let pool = pool().await;
    let [main, _] = pool.processes().await.unwrap();
    let [keeper, waits] = ahead(main).await;
    let session = Session::of(&pool).await;
    assert_eq!(
        (session.tree.keeper(), session.tree.main()),
        (keeper, waits)
    );
    session.close().await;
    let [_, next] = ahead(main).await;
    assert_ne!(next, waits);
    pool.close().await;
    gone(next).await;
}

#[tokio::test]
async fn more_requests_than_forks_that_wait_are_all_served() {
    let pool = pool().await;
    let [main, _] = pool.processes().await.unwrap();
    let before = held();
    let all: Vec<_> = (0..20).map(|_| Session::of(&pool)).collect();
    let mut pids = Vec::new();
    for mut session in join_all(all).await {
        let random = session.eval("(__import__('os').getpid(), __import__('random').random())");
        pids.push(random.await);
        session.close().await;
    }
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 20);
    assert!(held() <= before + 1, "the runtime's own at most");
    ahead(main).await;
    pool.close().await;
}

#[tokio::test]
async fn a_fork_that_was_killed_while_it_waited_is_not_missed() {
    let pool = pool().await;
    let [main, _] = pool.processes().await.unwrap();
    for which in 0..2 {
        let waiting = ahead(main).await;
        kill(waiting[which]);
        gone(waiting[which]).await;
        let mut session = Session::of(&pool).await;
        assert_eq!(session.eval("1 + 1").await, "2");
        session.close().await;
        for pid in waiting {
            gone(pid).await;
        }
    }
    assert_eq!(pool.processes().await.unwrap()[0], main);
    pool.close().await;
}

#[tokio::test]
async fn forks_that_wait_end_with_their_interpreter() {
    let pool = pool().await;
    let [main, keeper] = pool.processes().await.unwrap();
    let waiting = ahead(main).await;
    kill(main);
    for pid in waiting.into_iter().chain([main]) {
        gone(pid).await;
    }
    pool.close().await;
    gone(keeper).await;
}
