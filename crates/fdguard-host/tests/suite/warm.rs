//! Sessions from the warm interpreter.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_host::warm::{Pool, find};
use fdguard_process::plan::{Group, Handed, Limits, Plan};
use fdguard_process::tree::{By, Stop, Tree};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::UnixDatagram;

/// Nothing takes this long.
const LONG: Duration = Duration::from_secs(60);
const NONCE: &str = "0123456789abcdef0123456789abcdef";

/// The stand-in for a session's driver: one command is a datagram, its end another.
const DRIVER: &str = r"
def _fdguard_drive(channel, ready):
    import os
    names = {'__name__': '__main__'}
    os.write(channel, ready + b' 0 ' + os.getcwdb() + b'\n')
    while True:
        text = os.read(channel, 1 << 16)
        if not text:
            raise SystemExit(0)
        try:
            value = str(eval(text.decode(), names))
        except SystemExit:
            raise
        except BaseException as error:
            value = repr(error)
        os.write(channel, value.encode())
";

fn python() -> PathBuf {
    find("python3", &std::env::var_os("PATH").unwrap()).unwrap()
}

fn keeper() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let folder = exe.ancestors().nth(2).unwrap().join("examples");
    let path = folder.join("session_keeper");
    assert!(path.is_file(), "{} is not built", path.display());
    path
}

async fn pool() -> Pool {
    Pool::start(&python(), &keeper(), DRIVER).await.unwrap()
}

/// A session's plan, our end of its side channel and of its standard output.
struct Asked {
    plan: Plan,
    side: UnixDatagram,
    out: fs::File,
}

fn ask() -> Asked {
    let (side, theirs) = UnixDatagram::pair().unwrap();
    let theirs = theirs.into_std().unwrap();
    // The session's end waits, as a session's does.
    theirs.set_nonblocking(false).unwrap();
    let (out, their_out) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let null = Arc::new(OwnedFd::from(fs::File::open("/dev/null").unwrap()));
    let their_out = Arc::new(their_out);
    let plan = Plan {
        command: Vec::new(),
        environment: std::env::vars_os().collect(),
        folder: None,
        stdio: [Some(null), Some(Arc::clone(&their_out)), Some(their_out)],
        handed: vec![Handed {
            fd: Arc::new(theirs.into()),
            name: None,
        }],
        soft_limit: None,
        group: Group::Session,
        cgroup: false,
        terminal: false,
        limits: Limits::default(),
    };
    Asked {
        plan,
        side,
        out: out.into(),
    }
}

/// A session that is ready.
struct Session {
    tree: Tree,
    side: UnixDatagram,
    out: fs::File,
}

impl Session {
    async fn fork(pool: &Pool, asked: Asked) -> Self {
        let Asked { plan, side, out } = asked;
        let tree = pool.fork(&plan, NONCE).await.unwrap();
        let mut session = Self { tree, side, out };
        let ready = session.hear().await;
        assert!(ready.starts_with(&format!("{NONCE} 0 /")), "{ready}");
        session
    }

    async fn of(pool: &Pool) -> Self {
        Self::fork(pool, ask()).await
    }

    async fn hear(&mut self) -> String {
        let mut room = [0; 4096];
        let heard = tokio::time::timeout(LONG, self.side.recv(&mut room)).await;
        let length = heard.unwrap().unwrap();
        String::from_utf8(room[..length].to_vec()).unwrap()
    }

    async fn eval(&mut self, text: &str) -> String {
        self.side.send(text.as_bytes()).await.unwrap();
        self.hear().await
    }

    /// Ends it, and gives how many were killed.
    async fn close(mut self) -> u32 {
        self.tree.stop(Stop {
            signal: 15,
            grace: Duration::ZERO,
        });
        empty(&mut self.tree).await
    }
}

async fn empty(tree: &mut Tree) -> u32 {
    use fdguard_process::tree::Told;
    let deadline = Instant::now() + LONG;
    loop {
        match tree.told() {
            Some(Told::Empty { killed, .. }) => return killed,
            Some(Told::Lost) => panic!("the keeper is gone"),
            Some(_) => {}
            None => {
                assert!(Instant::now() < deadline, "it lives on");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

fn held() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Waits until a process is gone, or a zombie of somebody else.
async fn gone(pid: u32) {
    let deadline = Instant::now() + LONG;
    let lives = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    };
    while lives() {
        assert!(Instant::now() < deadline, "{pid} lives on");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_ascii_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

fn number(text: &str) -> u32 {
    text.parse().unwrap_or_else(|_| panic!("{text}"))
}

#[tokio::test]
async fn a_hundred_sessions_leave_exactly_what_was_there_before() {
    let without = held();
    let pool = pool().await;
    // The first readiness makes what the runtime keeps.
    Session::of(&pool).await.close().await;
    let before = held();
    let [main, _] = pool.processes().await.unwrap();
    let mut times = Vec::new();
    for _ in 0..100 {
        let asked = ask();
        let begin = Instant::now();
        let mut session = Session::fork(&pool, asked).await;
        times.push(begin.elapsed());
        // Ours: the keeper's end, the side channel, the output.
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
    let deadline = Instant::now() + LONG;
    while !children(main).is_empty() {
        assert!(Instant::now() < deadline, "{:?}", children(main));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    pool.close().await;
    gone(main).await;
    assert!(held() <= without + 4, "the runtime's own at most");
}

#[tokio::test]
async fn a_session_that_forks_away_is_ended_wholly() {
    let pool = pool().await;
    let mut session = Session::of(&pool).await;
    let away = "__import__('subprocess').run(['sh', '-c', \
        'setsid sh -c \"sleep 1000 & sleep 1000 & echo \\\\$!; wait\" > /dev/null 2>&1 & echo $!'], capture_output=True).stdout.decode()";
    let pid = number(session.eval(away).await.trim());
    let deadline = Instant::now() + LONG;
    while session.tree.members().len() < 4 {
        assert!(Instant::now() < deadline, "{:?}", session.tree.members());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(session.tree.members().contains(&pid));
    assert_eq!(session.close().await, 4);
    gone(pid).await;
    pool.close().await;
}

#[tokio::test]
async fn environment_folder_and_random_numbers_are_a_sessions_own() {
    let pool = pool().await;
    let folder = tempfile::tempdir().unwrap();
    let mut asked = ask();
    asked.plan.folder = Some(folder.path().to_owned());
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
    let own = folder.path().canonicalize().unwrap();
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
    // Its streams, the side channel, and the one that lists them.
    assert_eq!(one.eval(sessions).await, "(True, [0, 1, 2, 3], 5, 1)");
    assert_eq!(one.close().await + other.close().await, 2);
    pool.close().await;
}

#[tokio::test]
async fn a_module_in_a_sessions_folder_comes_before_what_was_imported_already() {
    let pool = pool().await;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("statistics.py"), "mine = 7\n").unwrap();
    let mut asked = ask();
    asked.plan.folder = Some(folder.path().to_owned());
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
    asked.plan.limits = Limits {
        memory: Some(256 << 20),
        descriptors: Some(40),
        ..Limits::default()
    };
    let mut session = Session::fork(&pool, asked).await;
    assert_eq!(session.tree.enforced().memory, By::Rlimit);
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
    // A request may meet the interpreter in its last moment; then the one after it is served.
    let asked = ask();
    let mut new = match pool.fork(&asked.plan, NONCE).await {
        Ok(tree) => {
            let Asked { side, out, .. } = asked;
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
async fn a_folder_that_is_missing_is_told_and_nothing_is_left() {
    let pool = pool().await;
    let [main, _] = pool.processes().await.unwrap();
    let mut asked = ask();
    asked.plan.folder = Some("/no/such/folder".into());
    let error = pool.fork(&asked.plan, NONCE).await.unwrap_err();
    assert!(error.to_string().contains("going to its folder"), "{error}");
    for child in children(main) {
        gone(child).await;
    }
    pool.close().await;
}

#[tokio::test]
async fn an_interpreter_that_cannot_start_says_why_and_another_is_not_served() {
    let before = held();
    let error = Pool::start(&python(), &keeper(), "import no_such_module_here")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no_such_module_here"), "{error}");
    let error = Pool::start("/no/such/python3".as_ref(), &keeper(), DRIVER)
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
    assert!(error.to_string().contains("another python3"), "{error}");
    pool.close().await;
    assert!(pool.fork(&ask().plan, NONCE).await.is_err());
}

/// Not a test: a host that somebody kills.
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
    // Until somebody kills us.
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
