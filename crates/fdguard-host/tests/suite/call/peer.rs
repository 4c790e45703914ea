//! Scripted servers, one thread for each connection.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A listening server; drop ends all its connections and threads.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) accepted: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    pub(super) fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (accepted, is_over, open) = (
            Arc::<AtomicUsize>::default(),
            Arc::<AtomicBool>::default(),
            Arc::<Mutex<Vec<TcpStream>>>::default(),
        );
        let (count, over, held) = (
            Arc::clone(&accepted),
            Arc::clone(&is_over),
            Arc::clone(&open),
        );
        let serve = Arc::new(serve);
        let accept = move || {
            let mut threads: Vec<JoinHandle<()>> = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                if over.load(SeqCst) {
                    break;
                }
                count.fetch_add(1, SeqCst);
                held.lock().unwrap().push(stream.try_clone().unwrap());
                let (serve, held) = (Arc::clone(&serve), Arc::clone(&held));
                let port = stream.peer_addr().ok();
                threads.push(std::thread::spawn(move || {
                    serve(stream);
                    // Drop the copy with its connection, so that the client sees the end.
                    held.lock().unwrap().retain(|other| {
                        other.peer_addr().ok() != port && other.peer_addr().is_ok()
                    });
                }));
                threads.retain(|thread| !thread.is_finished());
            }
            for thread in threads {
                thread.join().unwrap();
            }
        };
        let thread = Some(std::thread::spawn(accept));
        Self {
            address,
            accepted,
            is_over,
            open,
            thread,
        }
    }

    /// With TLS. A handshake that fails is the client's affair.
    pub(super) fn tls(
        identity: &Identity,
        serve: impl Fn(StreamOwned<ServerConnection, TcpStream>) + Send + Sync + 'static,
    ) -> Self {
        let config = Arc::clone(&identity.config);
        Self::start(move |tcp| {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            serve(StreamOwned::new(session, tcp));
        })
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn secure_url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }

    pub(super) fn accepted(&self) -> usize {
        self.accepted.load(SeqCst)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        drop(TcpStream::connect(self.address));
        for stream in self.open.lock().unwrap().iter() {
            drop(stream.shutdown(Shutdown::Both));
        }
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
        self.open.lock().unwrap().clear();
    }
}

/// A certificate for localhost that its own PEM proves.
pub(super) struct Identity {
    pub(super) pem: Vec<u8>,
    pub(super) config: Arc<ServerConfig>,
}

impl Identity {
    pub(super) fn new() -> Self {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let chain = vec![CertificateDer::from(made.cert.der().to_vec())];
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Self {
            pem: made.cert.pem().into_bytes(),
            config: Arc::new(config),
        }
    }
}

/// Reads one request with its body; `None` at the end of the connection.
pub(super) fn read_request(stream: &mut impl Read) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0_u8];
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => bytes.push(byte[0]),
            _ => return None,
        }
    }
    let text = String::from_utf8(bytes).unwrap();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).ok()?;
    Some(text + &String::from_utf8_lossy(&body))
}

/// Answers every request on the connection.
pub(super) fn answer_all(stream: &mut (impl Read + Write), answer: &[u8]) {
    while read_request(stream).is_some() {
        if stream
            .write_all(answer)
            .and_then(|()| stream.flush())
            .is_err()
        {
            return;
        }
    }
}

/// Waits for the end of the connection, and discards incoming data.
pub(super) fn wait_for_end(stream: &mut impl Read) {
    let mut bytes = [0_u8; 4096];
    while matches!(stream.read(&mut bytes), Ok(1..)) {}
}
