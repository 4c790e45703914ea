//! A warm interpreter and sessions of it, for tests.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fdguard_host::warm::{WarmPool, find};
use fdguard_proc::stat::ProcStat;
use fdguard_process::plan::{InheritedFd, Plan};
use fdguard_process::tree::{StopPlan, Tree};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::UnixDatagram;

use super::host_harness::eventually;

/// Longer than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);
pub(crate) const NONCE: &str = "0123456789abcdef0123456789abcdef";

/// A fake session driver: one command is a datagram, its end another.
pub(crate) const DRIVER: &str = r"
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

pub(crate) fn python() -> PathBuf {
    find("python3", &std::env::var_os("PATH").unwrap()).unwrap()
}

pub(crate) fn keeper() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let dir = exe.ancestors().nth(2).unwrap().join("examples");
    let path = dir.join("session_keeper");
    assert!(path.is_file(), "{} is not built", path.display());
    path
}

pub(crate) async fn pool() -> WarmPool {
    WarmPool::start(&python(), &keeper(), DRIVER).await.unwrap()
}

/// A session's plan, and the host's ends of its side channel and standard output.
pub(crate) struct PlannedSession {
    pub(crate) plan: Plan,
    pub(crate) side: UnixDatagram,
    pub(crate) out: fs::File,
}

pub(crate) fn ask() -> PlannedSession {
    let (side, theirs) = UnixDatagram::pair().unwrap();
    let theirs = theirs.into_std().unwrap();
    // The session's end waits, as a session's does.
    theirs.set_nonblocking(false).unwrap();
    let (out, their_out) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let null = Arc::new(OwnedFd::from(fs::File::open("/dev/null").unwrap()));
    let their_out = Arc::new(their_out);
    let plan = Plan {
        stdio: [Some(null), Some(Arc::clone(&their_out)), Some(their_out)],
        handed: vec![InheritedFd {
            fd: Arc::new(theirs.into()),
            name: None,
        }],
        ..Plan::new(Vec::new(), std::env::vars_os().collect())
    };
    PlannedSession {
        plan,
        side,
        out: out.into(),
    }
}

/// A session that is ready.
pub(crate) struct Session {
    pub(crate) tree: Tree,
    pub(crate) side: UnixDatagram,
    pub(crate) out: fs::File,
}

impl Session {
    pub(crate) async fn fork(pool: &WarmPool, asked: PlannedSession) -> Self {
        let PlannedSession { plan, side, out } = asked;
        let tree = pool.fork(&plan, NONCE).await.unwrap();
        let mut session = Self { tree, side, out };
        let ready = session.hear().await;
        assert!(ready.starts_with(&format!("{NONCE} 0 /")), "{ready}");
        session
    }

    pub(crate) async fn of(pool: &WarmPool) -> Self {
        Self::fork(pool, ask()).await
    }

    pub(crate) async fn hear(&mut self) -> String {
        let mut room = [0; 4096];
        let heard = tokio::time::timeout(LONG, self.side.recv(&mut room)).await;
        let length = heard.unwrap().unwrap();
        String::from_utf8(room[..length].to_vec()).unwrap()
    }

    pub(crate) async fn eval(&mut self, text: &str) -> String {
        self.side.send(text.as_bytes()).await.unwrap();
        self.hear().await
    }

    /// Ends it, and returns how many processes were killed.
    pub(crate) async fn close(mut self) -> u32 {
        self.tree.stop(StopPlan {
            signal: 15,
            grace: Duration::ZERO,
        });
        empty(&mut self.tree).await
    }
}

pub(crate) async fn empty(tree: &mut Tree) -> u32 {
    use fdguard_process::tree::TreeEvent;
    let mut count = None;
    eventually("the tree is empty", || {
        match tree.told() {
            Some(TreeEvent::Empty { killed, .. }) => count = Some(killed),
            Some(TreeEvent::Lost) => panic!("the keeper is gone"),
            Some(_) | None => {}
        }
        count.is_some()
    })
    .await;
    count.unwrap()
}

pub(crate) fn held() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Waits until a process is gone, or a zombie of another parent.
pub(crate) async fn gone(pid: u32) {
    let lives = || fdguard_proc::process::stat(pid, |stat| !stat.is_zombie()).unwrap_or(false);
    eventually(&format!("the end of {pid}"), || !lives()).await;
}

pub(crate) fn children(pid: u32) -> Vec<u32> {
    fdguard_proc::process::children(pid)
}

pub(crate) fn number(text: &str) -> u32 {
    text.parse().unwrap_or_else(|_| panic!("{text}"))
}

/// The keeper and the session that were forked ahead, as soon as they are the interpreter's only
/// children and wait.
pub(crate) async fn ahead(interpreter: u32) -> [u32; 2] {
    let mut found = None;
    eventually("a session is forked ahead", || {
        if let [keeper] = children(interpreter)[..]
            && let [session] = children(keeper)[..]
            && waits(keeper, session)
        {
            found = Some([keeper, session]);
        }
        found.is_some()
    })
    .await;
    found.unwrap()
}

/// Whether both have let go of what they share with the other: the keeper with its exec, the
/// session before it becomes the leader of its own.
fn waits(keeper: u32, session: u32) -> bool {
    let read = |pid: u32, name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let words = read(keeper, "cmdline");
    let stat = read(session, "stat");
    let leader = ProcStat::parse(&stat).and_then(|stat| stat.session);
    words
        .split(|byte| *byte == 0)
        .any(|word| word == b"__keeper")
        && leader == Some(session)
}
