//! `fdguard run` for a long time: a service that leaks and is killed again and again, under load.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::fdguard;

const KILLS: usize = 200;
const CLIENTS: usize = 3;
/// Far more than it takes: who waits for longer waits for nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the clients saw.
#[derive(Default)]
struct Seen {
    is_over: AtomicBool,
    /// Who answered last.
    last: AtomicU32,
    answered: AtomicUsize,
    /// Nobody listened.
    refused: AtomicUsize,
    /// The service was killed while it had the connection.
    cut: AtomicUsize,
}

/// Asks one question after the other; each on a connection of its own.
fn ask(port: u16, seen: &Seen) {
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
fn running(program: &Path) -> BTreeSet<u32> {
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

fn descriptors(pid: u32) -> BTreeSet<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Waits until this holds; a test that waits in vain fails with these words.
fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

fn start(program: &Path, port: u16) -> Child {
    let mut command = fdguard();
    command.args([
        "run",
        "--restart",
        "always",
        "--crash-loop",
        "off",
        "--min-uptime",
        "1ms",
    ]);
    command
        .args(["--listen", &format!("tcp:127.0.0.1:{port}"), "--"])
        .arg(program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

/// A copy of the victim that nobody else runs.
fn victim(folder: &Path) -> PathBuf {
    let built = testkit::c_variant("leaky", "O1", &["-O1", "-g"]).expect("a victim that compiles");
    let own = folder.join("leaky");
    fs::copy(built, &own).unwrap();
    own.canonicalize().unwrap()
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn soak_two_hundred_kills_under_load_refuse_nobody_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let program = victim(folder.path());
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let mut supervisor = start(&program, port);
    until("the socket is there", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let seen = Seen::default();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| ask(port, &seen));
        }
        until("an answer", || seen.last.load(Ordering::Relaxed) != 0);
        let before = descriptors(supervisor.id());
        for _ in 0..KILLS {
            let now = seen.last.load(Ordering::Relaxed);
            kill(now);
            until("a successor answers", || {
                seen.last.load(Ordering::Relaxed) != now
            });
        }
        until("the supervisor holds what it held", || {
            descriptors(supervisor.id()) == before
        });
        assert_eq!(zombies_below(supervisor.id()), 0);
        // The service and its one stray child: those of two hundred others are gone.
        until("one service is left", || running(&program).len() <= 2);
        seen.is_over.store(true, Ordering::Relaxed);
    });
    let id = Pid::from_child(&supervisor);
    kill_process(id, Signal::TERM).unwrap();
    assert_eq!(supervisor.wait().unwrap().code(), Some(0));
    assert_eq!(
        running(&program),
        BTreeSet::new(),
        "nothing outlives the supervisor"
    );
    let (answered, refused) = (seen.answered.into_inner(), seen.refused.into_inner());
    assert_eq!(
        refused,
        0,
        "of {answered} that were answered; {} were cut",
        seen.cut.into_inner()
    );
    assert!(answered > KILLS);
}
