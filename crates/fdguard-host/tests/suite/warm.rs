//! Sessions from the warm interpreter.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::time::Instant;

use fdguard_host::warm::WarmPool;
use fdguard_process::plan::TreeLimits;
use fdguard_process::tree::LimitMechanism;

use super::host_harness::eventually;
use super::warm_harness::{
    DRIVER, LONG, NONCE, PlannedSession, Session, ahead, ask, empty, gone, held, keeper, number,
    pool, python,
};

#[tokio::test]
async fn a_hundred_sessions_leave_exactly_what_was_there_before() {
    let without = held();
    let pool = pool().await;
    // The first session creates what the runtime keeps.
    Session::of(&pool).await.close().await;
    let before = held();
    let [main, _] = pool.processes().await.unwrap();
    let mut times = Vec::new();
    for _ in 0..100 {
        let asked = ask();
        let begin = Instant::now();
        let mut session = Session::fork(&pool, asked).await;
        times.push(begin.elapsed());
        // The host's share: the keeper's end, the side channel, the output.
        assert_eq!(held(), before + 3);
        assert_eq!(session.eval("6 * 7").await, "42");
        let pid = session.tree.main();
        assert_eq!(session.close().await, 1);
        gone(pid).await;
    }
    times.sort_unstable();
    println!(
        "from the pool to ready: median {:?}, longest {:?}",
        times[50], times[99]
    );
    assert_eq!(held(), before);
    let waiting = ahead(main).await;
    pool.close().await;
    for pid in waiting.into_iter().chain([main]) {
        gone(pid).await;
    }
    assert!(held() <= without + 4, "the runtime's own at most");
}

#[tokio::test]
async fn a_session_that_forks_away_is_ended_wholly() {
    let pool = pool().await;
    let mut session = Session::of(&pool).await;
    let away = "__import__('subprocess').run(['sh', '-c', \
        'setsid sh -c \"sleep 1000 & sleep 1000 & echo \\\\$!; wait\" > /dev/null 2>&1 & echo $!'], capture_output=True).stdout.decode()";
    let pid = number(session.eval(away).await.trim());
    eventually("four processes", || session.tree.members().len() >= 4).await;
    assert!(session.tree.members().contains(&pid));
    assert_eq!(session.close().await, 4);
    gone(pid).await;
    pool.close().await;
}

#[tokio::test]
async fn environment_dir_and_random_numbers_are_a_sessions_own() {
    let pool = pool().await;
    let dir = tempfile::tempdir().unwrap();
    let mut asked = ask();
    asked.plan.dir = Some(dir.path().to_owned());
    let secret: OsString = "SECRET_OF_ONE".into();
    asked.plan.environment.push((secret, "yes".into()));
    let mut one = Session::fork(&pool, asked).await;
    let mut other = Session::of(&pool).await;
    assert_eq!(
        one.eval("__import__('os').environ['SECRET_OF_ONE']").await,
        "yes"
    );
    assert_eq!(
        other
            .eval("'SECRET_OF_ONE' in __import__('os').environ")
            .await,
        "False"
    );
    assert_eq!(
        other.eval("__import__('os').getenv('PATH')").await,
        std::env::var("PATH").unwrap()
    );
    let own = dir.path().canonicalize().unwrap();
    assert_eq!(
        one.eval("__import__('os').getcwd()").await,
        own.to_str().unwrap()
    );
    let ours = std::env::current_dir().unwrap();
    assert_eq!(
        other.eval("__import__('os').getcwd()").await,
        ours.to_str().unwrap()
    );
    let random = "__import__('random').random()";
    assert_ne!(one.eval(random).await, other.eval(random).await);
    let sessions = "(__import__('os').getsid(0) == __import__('os').getpid(), sorted(map(int, __import__('os').listdir('/proc/self/fd')))[:4], \
        len(__import__('os').listdir('/proc/self/fd')), __import__('threading').active_count())";
    // Its streams, the side channel, and the descriptor that lists them.
    assert_eq!(one.eval(sessions).await, "(True, [0, 1, 2, 3], 5, 1)");
    assert_eq!(one.close().await + other.close().await, 2);
    pool.close().await;
}

#[tokio::test]
async fn a_module_in_a_sessions_dir_comes_before_what_was_imported_already() {
    let pool = pool().await;
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("statistics.py"), "mine = 7\n").unwrap();
    let mut asked = ask();
    asked.plan.dir = Some(dir.path().to_owned());
    let mut session = Session::fork(&pool, asked).await;
    assert_eq!(session.eval("__import__('statistics').mine").await, "7");
    pool.close().await;
}

#[tokio::test]
async fn output_and_the_exit_of_a_session_are_its_own() {
    let pool = pool().await;
    let mut session = Session::of(&pool).await;
    assert_eq!(session.eval("print('said')").await, "None");
    session.side.send(b"exit(3)").await.unwrap();
    assert_eq!(empty(&mut session.tree).await, 0);
    let mut text = String::new();
    session.out.read_to_string(&mut text).unwrap();
    assert_eq!(text, "said\n", "written at the end at last");
    pool.close().await;
}

#[tokio::test]
async fn limits_hold_in_a_session() {
    let pool = pool().await;
    let mut asked = ask();
    asked.plan.limits = TreeLimits {
        memory: Some(256 << 20),
        descriptors: Some(40),
        ..TreeLimits::default()
    };
    let mut session = Session::fork(&pool, asked).await;
    assert_eq!(session.tree.enforced().memory, LimitMechanism::Rlimit);
    assert_eq!(
        session.eval("len(bytearray(512 << 20))").await,
        "MemoryError()"
    );
    assert_eq!(
        session
            .eval("__import__('resource').getrlimit(__import__('resource').RLIMIT_NOFILE)")
            .await,
        "(40, 40)"
    );
    pool.close().await;
}

#[tokio::test]
async fn sessions_outlive_their_interpreter_and_the_next_request_starts_another() {
    let pool = pool().await;
    let mut old = Session::of(&pool).await;
    let [main, _] = pool.processes().await.unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(main).unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    gone(main).await;
    // A request may reach an interpreter that is just ending; then the next one is served.
    let asked = ask();
    let mut new = match pool.fork(&asked.plan, NONCE).await {
        Ok(tree) => {
            let PlannedSession { side, out, .. } = asked;
            let mut session = Session { tree, side, out };
            session.hear().await;
            session
        }
        Err(_) => Session::of(&pool).await,
    };
    assert_ne!(pool.processes().await.unwrap()[0], main);
    assert_eq!(pool.trouble(), None);
    assert_eq!(old.eval("1 + 1").await, "2");
    assert_eq!(new.eval("1 + 2").await, "3");
    let (old, new) = (old.tree.main(), new.tree.main());
    pool.close().await;
    gone(old).await;
    gone(new).await;
}

#[tokio::test]
async fn an_interpreter_whose_keeper_is_stopped_again_and_again_ends_in_time() {
    let pool = pool().await;
    let [interpreter, keeper] = pool.processes().await.unwrap();
    let mut session = Session::of(&pool).await;
    let stops = format!("trap '' TERM; while :; do kill -STOP {keeper}; done");
    let popen = "__import__('subprocess').Popen";
    let code = format!("{popen}(['sh', '-c', {stops:?}], start_new_session=True).pid");
    let stranger = number(&session.eval(&code).await);
    tokio::time::timeout(LONG / 2, pool.close()).await.unwrap();
    for pid in [interpreter, keeper, session.tree.main(), stranger] {
        gone(pid).await;
    }
}

#[tokio::test]
async fn a_dir_that_is_missing_is_told_and_nothing_is_left() {
    let pool = pool().await;
    let [main, _] = pool.processes().await.unwrap();
    let mut asked = ask();
    asked.plan.dir = Some("/no/such/folder".into());
    let error = pool.fork(&asked.plan, NONCE).await.unwrap_err();
    assert!(
        error.to_string().contains("cannot change to its directory"),
        "{error}"
    );
    ahead(main).await;
    pool.close().await;
}

#[tokio::test]
async fn an_interpreter_that_cannot_start_says_why_and_another_is_not_served() {
    let before = held();
    let error = WarmPool::start(&python(), &keeper(), "import no_such_module_here")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no_such_module_here"), "{error}");
    let error = WarmPool::start("/no/such/python3".as_ref(), &keeper(), DRIVER)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("not found"), "{error}");
    assert!(held() <= before + 1);
    let pool = pool().await;
    let mut asked = ask();
    asked
        .plan
        .environment
        .push(("PYTHONHASHSEED".into(), "0".into()));
    let error = pool.fork(&asked.plan, NONCE).await.unwrap_err();
    assert!(error.to_string().starts_with("PYTHONHASHSEED"), "{error}");
    let mut asked = ask();
    asked
        .plan
        .environment
        .push(("PATH".into(), "/no/such".into()));
    let error = pool.fork(&asked.plan, NONCE).await.unwrap_err();
    assert!(error.to_string().contains("different python3"), "{error}");
    pool.close().await;
    assert!(pool.fork(&ask().plan, NONCE).await.is_err());
}

/// Not a test: a host that is killed.
#[tokio::test]
#[ignore = "a role that another test starts"]
async fn role() {
    if std::env::var_os("FDGUARD_TEST_ROLE").is_none() {
        testkit::skip("no role was given");
        return;
    }
    let pool = pool().await;
    let mut session = Session::of(&pool).await;
    let away = "__import__('subprocess').Popen(['setsid', 'sleep', '1000']).pid";
    let away = session.eval(away).await;
    let [zygote, its_keeper] = pool.processes().await.unwrap();
    let (main, keeper) = (session.tree.main(), session.tree.keeper());
    println!("owns {zygote} {its_keeper} {main} {keeper} {away}");
    // Waits to be killed.
    std::io::stdin()
        .read_line(&mut String::new())
        .expect("a line");
}

#[tokio::test]
async fn a_host_that_is_killed_leaves_no_interpreter_no_keeper_and_no_session() {
    use std::io::BufRead as _;
    let mut host = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "suite::warm::role", "--nocapture"])
        .env("FDGUARD_TEST_ROLE", "host")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let out = std::io::BufReader::new(host.stdout.take().unwrap());
    let pids = out.lines().find_map(|line| {
        let line = line.unwrap();
        let at = line.find("owns ")?;
        Some(line[at + 5..].to_owned())
    });
    let pids: Vec<u32> = pids.unwrap().split(' ').map(number).collect();
    assert_eq!(pids.len(), 5);
    host.kill().unwrap();
    host.wait().unwrap();
    for pid in pids {
        gone(pid).await;
    }
}
