//! `fdguard run` for a long time: a service that leaks and is killed again and again, under load.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::running::{Running, free_port, signal};

const KILLS: u32 = 200;
const CLIENTS: usize = 3;
/// Far more than needed: longer means a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the clients saw.
#[derive(Default)]
struct ClientCounts {
    is_over: AtomicBool,
    /// The pid that answered last.
    last: AtomicU32,
    answered: AtomicU32,
    /// No listener.
    refused: AtomicU32,
    /// The service was killed while it had the connection.
    cut: AtomicU32,
}

/// Sends one request after the other, each on its own connection.
fn ask(port: u16, seen: &ClientCounts) {
    while !seen.is_over.load(Ordering::Relaxed) {
        match answer(port) {
            Ok(pid) => {
                seen.last.store(pid, Ordering::Relaxed);
                seen.answered.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                seen.refused.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                seen.cut.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn answer(port: u16) -> io::Result<u32> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"?\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let parsed = text.trim().parse();
    parsed.map_err(|_error| io::ErrorKind::UnexpectedEof.into())
}

/// Processes that run this file, whatever became of their parents.
fn running_now(program: &Path) -> BTreeSet<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program)
    })
    .collect()
}

fn zombies_below(pid: u32) -> usize {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let is_zombie = |child: &str| {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z'))
    };
    children
        .split_whitespace()
        .filter(|child| is_zombie(child))
        .count()
}

/// Stops the clients, even if the test fails.
struct Over<'s>(&'s ClientCounts);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// Waits until this holds; on timeout the test fails with this text.
fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

fn start(program: &Path, port: u16) -> Running {
    let listen = format!("tcp:127.0.0.1:{port}");
    let policy = [
        "--restart",
        "always",
        "--crash-loop",
        "off",
        "--backoff",
        "off",
    ];
    let socket = ["--listen", &*listen, "--", program.to_str().unwrap()];
    Running::start(policy.into_iter().chain(socket))
}

/// A private copy of the victim.
fn victim(dir: &Path) -> PathBuf {
    let built = testkit::c_variant("leaky", "O1", &["-O1", "-g"]).expect("a victim that compiles");
    let own = dir.join("leaky");
    fs::copy(built, &own).unwrap();
    own.canonicalize().unwrap()
}

#[test]
fn soak_two_hundred_kills_under_load_refuse_nobody_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let program = victim(dir.path());
    let port = free_port();
    let mut running = start(&program, port);
    until("the socket is there", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let seen = ClientCounts::default();
    std::thread::scope(|scope| {
        let _over = Over(&seen);
        for _ in 0..CLIENTS {
            scope.spawn(|| ask(port, &seen));
        }
        let mut pid = running.event("start", &[]).number("pid");
        let before = running.at_rest();
        for _ in 0..KILLS {
            until("it answers", || seen.last.load(Ordering::Relaxed) == pid);
            signal(pid, Signal::KILL);
            pid = running.event("start", &[]).number("pid");
        }
        assert_eq!(running.at_rest(), before);
        assert_eq!(zombies_below(running.pid()), 0);
        // The service and its one stray child: those of two hundred earlier runs are gone.
        until("one service is left", || running_now(&program).len() <= 2);
    });
    let (code, last) = running.stop();
    assert_eq!((code, last.number("restarts")), (0, KILLS));
    assert_eq!(last.value("fds_at_start"), last.value("fds_at_end"));
    let left = running_now(&program);
    assert_eq!(left, BTreeSet::new(), "nothing outlives the supervisor");
    let (answered, refused) = (seen.answered.into_inner(), seen.refused.into_inner());
    let cut = seen.cut.into_inner();
    assert_eq!(
        refused, 0,
        "of {answered} that were answered; {cut} were cut"
    );
    assert!(answered > KILLS);
}
