//! The race of source 004: calls are aborted by other threads while databases are opened, read and closed beside them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use fdguard_host::call::{Caller, Phase, Request, What};
use sha2::{Digest as _, Sha256};

use super::kit::{Log, descriptors, tls_caller, until, until_descriptors};
use super::peer::{Identity, Peer, read_request, wait_for_end};

pub(super) fn database(folder: &Path, number: usize) -> PathBuf {
    let path = folder.join(format!("board-{number}.db"));
    let new = rusqlite::Connection::open(&path).unwrap();
    new.execute_batch("CREATE TABLE task(id INTEGER PRIMARY KEY, title TEXT)")
        .unwrap();
    for number in 0..50 {
        new.execute(
            "INSERT INTO task(title) VALUES (?1)",
            [format!("task {number}")],
        )
        .unwrap();
    }
    path
}

pub(super) fn digest(path: &Path) -> Vec<u8> {
    Sha256::digest(std::fs::read(path).unwrap()).to_vec()
}

/// Opens, reads and closes; says what went wrong.
pub(super) fn visit(path: &Path) -> rusqlite::Result<i64> {
    let board = rusqlite::Connection::open(path)?;
    board.query_row("SELECT count(*) FROM task", [], |row| row.get(0))
}

pub(super) fn integrity(path: &Path) -> rusqlite::Result<String> {
    let board = rusqlite::Connection::open(path)?;
    board.query_row("PRAGMA integrity_check", [], |row| row.get(0))
}

/// Half of the connections get the head of an answer, so that aborts hit reads of bodies as well.
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

/// One call that another thread aborts when it is blocked, or shortly before.
async fn one(caller: &Caller, url: &str, round: usize) {
    let path = if round.is_multiple_of(2) {
        "stream"
    } else {
        "silent"
    };
    let mut call = caller.begin(Request::get(&format!("{url}{path}"))).unwrap();
    let handle = call.handle();
    let stranger = tokio::task::spawn_blocking(move || {
        // Every phase is hit: the connect, the handshake, the wait, the body.
        let aim = [Phase::Connect, Phase::Tls, Phase::Wait, Phase::Body];
        let aim = aim[round % 4];
        let by = Instant::now() + Duration::from_millis(20);
        while handle.info().phase != aim && Instant::now() < by {
            std::hint::spin_loop();
        }
        handle.abort()
    });
    let failure = async {
        call.response().await?;
        while call.chunk().await?.is_some() {}
        Ok::<_, fdguard_host::call::Failure>(())
    };
    assert_eq!(failure.await.unwrap_err().code(), "aborted");
    drop(call);
    stranger.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r39_thousands_of_aborts_beside_open_databases_touch_no_byte_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let boards: Vec<PathBuf> = (0..4)
        .map(|number| database(folder.path(), number))
        .collect();
    let before: Vec<_> = boards.iter().map(|board| digest(board)).collect();
    let identity = Identity::new();
    let peer = Peer::tls(&identity, serve);
    let log = Log::default();
    let caller = tls_caller(&log, &identity.pem);
    let baseline = descriptors();
    let (is_over, visits) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let readers: Vec<_> = boards
        .iter()
        .cloned()
        .map(|board| {
            let (is_over, visits) = (Arc::clone(&is_over), Arc::clone(&visits));
            std::thread::spawn(move || {
                while !is_over.load(SeqCst) {
                    assert_eq!(visit(&board), Ok(50));
                    visits.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    let url = peer.secure_url("/");
    let by = Instant::now() + Duration::from_secs(12);
    let aborts = Arc::new(AtomicUsize::new(0));
    let owners = (0..4).map(|owner| {
        let (caller, url, aborts) = (caller.clone(), url.clone(), Arc::clone(&aborts));
        tokio::spawn(async move {
            let mut round = owner;
            while aborts.load(SeqCst) < 4000 && Instant::now() < by {
                one(&caller, &url, round).await;
                aborts.fetch_add(1, SeqCst);
                round += 1;
            }
        })
    });
    for owner in owners.collect::<Vec<_>>() {
        owner.await.unwrap();
    }
    is_over.store(true, SeqCst);
    for reader in readers {
        reader.join().unwrap();
    }
    let (aborts, visits) = (aborts.load(SeqCst), visits.load(SeqCst));
    eprintln!("{aborts} aborts of TLS calls, {visits} databases opened beside them");
    assert!(aborts >= 300 && visits >= 300, "too few to mean anything");
    for (board, before) in boards.iter().zip(&before) {
        assert_eq!(digest(board), *before);
        assert_eq!(integrity(board).as_deref(), Ok("ok"));
    }
    let ends = log.of(What::Ended);
    assert_eq!(ends.len(), aborts);
    assert!(
        ends.iter()
            .filter(|end| end.tcp_force_closed == Some(1))
            .count()
            > aborts / 2
    );
    until("the server has ended its side", || {
        descriptors() <= baseline
    });
    until_descriptors(baseline);
}
