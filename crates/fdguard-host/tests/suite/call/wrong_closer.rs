//! The same with a stranger that closes the number: the damage must show, or the test of the race
//! proves nothing.
#![expect(
    unsafe_code,
    reason = "the mistake itself: a number that belongs to somebody else is closed"
)]

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};

use fdguard_host::call::{CallPhase, CallRequest};

use super::kit::{Log, tls_caller, until_phase};
use super::peer::{Identity, Peer, read_request, wait_for_end};
use super::race::{database, digest, visit};

const CHILD: &str = "FDGUARD_TEST_WRONG_CLOSER";

/// The number of the socket with this local address; the owner's is lower than its duplicate's.
fn number_of(local: SocketAddr) -> i32 {
    let is_it = |number: &i32| {
        // SAFETY: the number is only queried. If it is not open the kernel returns an error.
        let fd = unsafe { BorrowedFd::borrow_raw(*number) };
        let address = rustix::net::getsockname(fd).ok();
        address.and_then(|address| SocketAddr::try_from(address).ok()) == Some(local)
    };
    (3..256).find(is_it).unwrap()
}

/// Sends the address of each client, and answers when the gate opens.
fn patient_peer(identity: &Identity, tell: Sender<SocketAddr>, gate: Receiver<()>) -> Peer {
    let (tell, gate) = (Mutex::new(tell), Mutex::new(gate));
    Peer::tls(identity, move |mut stream| {
        use std::io::Write as _;
        read_request(&mut stream);
        tell.lock()
            .unwrap()
            .send(stream.sock.peer_addr().unwrap())
            .unwrap();
        assert!(gate.lock().unwrap().recv().is_err());
        drop(
            stream
                .write_all(b"HTTP/1.1 200 OK\r\n\r\n")
                .and_then(|()| stream.flush()),
        );
        wait_for_end(&mut stream);
    })
}

/// The child: prints INTACT or what it saw. The standard library may abort it: it checks the
/// numbers that it closes.
async fn make_the_mistake(dir: &std::path::Path, is_wrong: bool) -> String {
    let board = database(dir, 0);
    let before = digest(&board);
    let (tell, told) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let identity = Identity::new();
    let peer = patient_peer(&identity, tell, gate);
    let caller = tls_caller(&Log::default(), &identity.pem);
    let mut call = caller
        .start(CallRequest::get(&peer.secure_url("/")))
        .unwrap();
    let handle = call.handle();
    let owner = tokio::spawn(async move {
        let result = call.response().await;
        drop(call);
        result
    });
    let (mut saw, held) = tokio::task::spawn_blocking(move || {
        let local = told.recv().unwrap();
        until_phase(&handle, CallPhase::Wait);
        if is_wrong {
            // SAFETY: none. The owner uses this number: that is the mistake under test.
            unsafe { rustix::io::close(number_of(local)) };
        } else {
            handle.abort();
        }
        // The database gets the first free number.
        let held = rusqlite::Connection::open(&board).unwrap();
        let first: rusqlite::Result<i64> =
            held.query_row("SELECT count(*) FROM task", [], |row| row.get(0));
        drop(go);
        (vec![format!("{first:?}")], (held, board))
    })
    .await
    .unwrap();
    let answer = owner.await.unwrap();
    let (held, board) = held;
    let after: rusqlite::Result<i64> =
        held.query_row("SELECT sum(length(title)) FROM task", [], |row| row.get(0));
    saw.push(format!("{after:?} {:?}", visit(&board)));
    if digest(&board) != before {
        saw.push("FOREIGN BYTES".to_owned());
    }
    let is_intact = after.is_ok()
        && digest(&board) == before
        && answer
            .as_ref()
            .is_err_and(|failure| failure.code() == "aborted");
    if is_intact {
        "INTACT".to_owned()
    } else {
        format!("DAMAGED {answer:?} {saw:?}")
    }
}

/// Runs this very test in a process of its own.
fn child(mode: &str) -> (bool, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "suite::call::wrong_closer::r39_a_stranger_that_closes_the_number_is_seen",
            "--nocapture",
        ])
        .env(CHILD, mode)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_a_stranger_that_closes_the_number_is_seen() {
    if let Ok(mode) = std::env::var(CHILD) {
        let dir = tempfile::tempdir().unwrap();
        println!(
            "SAW {}",
            make_the_mistake(dir.path(), mode == "wrong").await
        );
        return;
    }
    let (is_fine, text) = child("right");
    assert!(is_fine && text.contains("SAW INTACT"), "{text}");
    let (_, text) = child("wrong");
    eprintln!(
        "the wrong closer: {}",
        text.lines()
            .filter(|line| line.contains("SAW") || line.contains("fatal"))
            .collect::<Vec<_>>()
            .join(" ")
    );
    assert!(!text.contains("SAW INTACT"), "{text}");
    // Not a socket, not open, a database that cannot be read or has other bytes, or the standard
    // library's own check.
    let signs = [
        "os error 88",
        "os error 9)",
        "SqliteFailure",
        "FOREIGN BYTES",
        "IO Safety violation",
    ];
    let is_seen = signs.iter().any(|sign| text.contains(sign));
    assert!(is_seen, "{text}");
}
