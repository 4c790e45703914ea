//! The race of source 004: other threads abort calls while databases are opened, read and closed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use fdguard_host::call::{CallEvent, CallEventKind, CallPhase, CallRequest, Caller};
use sha2::{Digest as _, Sha256};

use super::kit::{Log, descriptors, tls_caller, until_descriptors};
use super::peer::{Identity, Peer, read_request, wait_for_end};

pub(super) fn database(dir: &Path, number: usize) -> PathBuf {
    let path = dir.join(format!("board-{number}.db"));
    let new = rusqlite::Connection::open(&path).unwrap();
    new.execute_batch("BEGIN; CREATE TABLE task(id INTEGER PRIMARY KEY, title TEXT)")
        .unwrap();
    for number in 0..50 {
        new.execute(
            "INSERT INTO task(title) VALUES (?1)",
            [format!("task {number}")],
        )
        .unwrap();
    }
    new.execute_batch("COMMIT").unwrap();
    path
}

pub(super) fn digest(path: &Path) -> Vec<u8> {
    Sha256::digest(std::fs::read(path).unwrap()).to_vec()
}

/// Opens, reads and closes; returns what failed.
pub(super) fn visit(path: &Path) -> rusqlite::Result<i64> {
    let board = rusqlite::Connection::open(path)?;
    board.query_row("SELECT count(*) FROM task", [], |row| row.get(0))
}

pub(super) fn integrity(path: &Path) -> rusqlite::Result<String> {
    let board = rusqlite::Connection::open(path)?;
    board.query_row("PRAGMA integrity_check", [], |row| row.get(0))
}

/// Some connections get the head of an answer, so that aborts also hit reads of bodies.
fn serve(mut stream: rustls::StreamOwned<rustls::ServerConnection, std::net::TcpStream>) {
    use std::io::Write as _;
    let Some(request) = read_request(&mut stream) else {
        return;
    };
    if request.contains("/stream") {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome";
        drop(stream.write_all(head).and_then(|()| stream.flush()));
    }
    wait_for_end(&mut stream);
}

/// One call that another thread aborts while it is blocked, or shortly before.
async fn one(caller: &Caller, url: &str, round: usize) {
    // Every phase is hit: the connect, the handshake, the wait, the body.
    let aim = [
        CallPhase::Connect,
        CallPhase::Tls,
        CallPhase::Wait,
        CallPhase::Body,
    ][round % 4];
    let path = if aim == CallPhase::Body {
        "stream"
    } else {
        "silent"
    };
    let mut call = caller
        .start(CallRequest::get(&format!("{url}{path}")))
        .unwrap();
    let handle = call.handle();
    let stranger = tokio::task::spawn_blocking(move || {
        let by = Instant::now() + Duration::from_millis(20);
        while handle.info().phase != aim && Instant::now() < by {
            std::thread::yield_now();
        }
        handle.abort()
    });
    let failure = async {
        call.response().await?;
        while call.chunk().await?.is_some() {}
        Ok::<_, fdguard_host::call::CallFailure>(())
    };
    assert_eq!(failure.await.unwrap_err().code(), "aborted");
    drop(call);
    stranger.await.unwrap();
}

/// Shared by the threads of the race.
#[derive(Default)]
struct Race {
    aborts: AtomicUsize,
    visits: AtomicUsize,
    is_over: AtomicBool,
}

impl Race {
    /// Three thousand aborts or ten seconds; a machine under load gets the time for three hundred.
    fn goes_on(&self, by: Instant) -> bool {
        let aborts = self.aborts.load(SeqCst);
        aborts < 300 || (aborts < 3000 && Instant::now() < by)
    }

    fn read(&self, board: &Path) {
        while !self.is_over.load(SeqCst) {
            assert_eq!(visit(board), Ok(50));
            self.visits.fetch_add(1, SeqCst);
            // Keep pace with the aborts: do not starve them.
            while self.visits.load(SeqCst) > 64 + 8 * self.aborts.load(SeqCst)
                && !self.is_over.load(SeqCst)
            {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Four owners with their strangers, and a reader for each database.
    async fn run(self: &Arc<Self>, caller: &Caller, url: &str, boards: &[PathBuf]) {
        let readers = boards.iter().cloned().map(|board| {
            let race = Arc::clone(self);
            std::thread::spawn(move || race.read(&board))
        });
        let readers: Vec<_> = readers.collect();
        let by = Instant::now() + Duration::from_secs(10);
        let owners = (0..4).map(|owner| {
            let (caller, url, race) = (caller.clone(), url.to_owned(), Arc::clone(self));
            tokio::spawn(async move {
                let mut round = owner;
                while race.goes_on(by) {
                    one(&caller, &url, round).await;
                    race.aborts.fetch_add(1, SeqCst);
                    round += 1;
                }
            })
        });
        let owners: Vec<_> = owners.collect();
        for owner in owners {
            owner.await.unwrap();
        }
        self.is_over.store(true, SeqCst);
        for reader in readers {
            reader.join().unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_thousands_of_aborts_beside_open_databases_touch_no_byte_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let boards = (0..4).map(|number| database(dir.path(), number));
    let boards: Vec<PathBuf> = boards.collect();
    let before: Vec<_> = boards.iter().map(|board| digest(board)).collect();
    let identity = Identity::new();
    let peer = Peer::tls(&identity, serve);
    let log = Log::default();
    let caller = tls_caller(&log, &identity.pem);
    let baseline = descriptors();
    let race = Arc::<Race>::default();
    race.run(&caller, &peer.secure_url("/"), &boards).await;
    let (aborts, visits) = (race.aborts.load(SeqCst), race.visits.load(SeqCst));
    eprintln!("{aborts} aborts of TLS calls, {visits} databases opened beside them");
    assert!(visits >= 300, "too few to mean anything: {visits}");
    for (board, before) in boards.iter().zip(&before) {
        assert_eq!(digest(board), *before);
        assert_eq!(integrity(board).as_deref(), Ok("ok"));
    }
    let ends = log.of(CallEventKind::Ended);
    assert_eq!(ends.len(), aborts);
    let is_shut = |end: &&CallEvent| end.tcp_force_closed == Some(1);
    assert!(ends.iter().filter(is_shut).count() > aborts / 2);
    until_descriptors(baseline);
}
