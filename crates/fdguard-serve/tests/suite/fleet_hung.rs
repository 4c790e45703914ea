//! A server of the fleet that hangs, or whose answer does not end, costs only the view of the
//! fleet.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use fdguard_serve::fleet::FleetOptions;
use fdguard_serve::{ExtraHeaders, ReceiverUrl};
use testkit::Victim;

use super::harness::{Server, VIEW};

fn server(from: &str) -> Server {
    let from = ReceiverUrl::parse(from).unwrap();
    Server::with(move |options| {
        options.fleet = Some(FleetOptions {
            from,
            token: None,
            headers: ExtraHeaders::default(),
            host_label: "instance".to_owned(),
            within: Duration::from_secs(30),
        });
    })
}

/// A server that takes requests and answers none until it is released. Then it hangs up.
struct HungEngine {
    url: String,
    is_released: Arc<AtomicBool>,
    kept: Arc<RwLock<Vec<TcpStream>>>,
    taken: Receiver<()>,
}

impl HungEngine {
    fn start() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        let (is_released, kept) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (told, taken) = channel();
        let engine = Self {
            url,
            is_released: Arc::clone(&is_released),
            kept: Arc::clone(&kept),
            taken,
        };
        std::thread::spawn(move || {
            for stream in socket.incoming().flatten() {
                let mut kept = kept.write().unwrap_or_else(PoisonError::into_inner);
                if !is_released.load(Ordering::SeqCst) {
                    kept.push(stream);
                    // The test may be over.
                    let _gone = told.send(());
                }
            }
        });
        engine
    }

    fn release(&self) {
        let mut kept = self.kept.write().unwrap();
        self.is_released.store(true, Ordering::SeqCst);
        kept.clear();
    }
}

#[test]
fn a_hung_server_of_the_fleet_delays_neither_snapshots_nor_history() {
    let engine = HungEngine::start();
    let server = server(&engine.url);
    let victim = Victim::start("crosser");
    let pid = victim.pid();
    server.wait("the service", |overview| {
        let mut services = overview["services"].as_array()?.iter();
        services.any(|one| one["name"] == "crosser").then_some(())
    });
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| server.request("GET /api/v1/fleet", Some(VIEW), "").0))
            .collect();
        // As many as are asked at a time wait for it now.
        for _ in 0..2 {
            engine.taken.recv().unwrap();
        }
        let snapshot = server.json(&format!("/api/v1/snapshot?pid={pid}"));
        assert_eq!(snapshot["schema"], "fdguard.snapshot/1");
        let service = server.json("/api/v1/service?kind=command&name=crosser");
        assert_eq!(service["service"]["name"], "crosser");
        let is_answered = asking
            .iter()
            .any(std::thread::ScopedJoinHandle::is_finished);
        engine.release();
        assert!(!is_answered, "the fleet was waited for");
        for one in asking {
            assert_eq!(one.join().unwrap(), 502);
        }
    });
    victim.finish();
}

#[test]
fn an_answer_of_the_fleet_that_does_not_end_is_cut_off() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in socket.incoming().flatten() {
            drop(stream.read(&mut [0; 4096]));
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n"));
            // Until it is hung up on.
            while stream.write_all(&[b' '; 64 << 10]).is_ok() {}
        }
    });
    let server = server(&url);
    let (status, _, body) = server.request("GET /api/v1/fleet", Some(VIEW), "");
    assert_eq!(status, 502, "{body}");
    assert!(body.contains("length limit"), "{body}");
    server.ticks(2);
}
