//! A real server in the test's own process, and a raw client: the test controls every byte on the
//! wire.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use fdguard_core::bearer::BearerToken;
use fdguard_host::host::{Host, Options};
use fdguard_host::http::{ApiSettings, HttpServer, ListeningSocket};
use serde_json::Value;
use tokio::runtime::Runtime;

pub(super) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const LONG: Duration = Duration::from_secs(20);

/// A server on a port of its own.
pub(super) struct ServedHost {
    pub(super) host: Host,
    pub(super) address: SocketAddr,
    server: HttpServer,
    runtime: Runtime,
}

/// A response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The stable code of a refusal.
    pub(super) fn code(&self) -> String {
        assert!(self.head.contains("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{problem}");
        assert_eq!(problem["schema"], "fdguard.problem/1", "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(!detail.is_empty() && !detail.contains('\n'), "{detail}");
        problem["code"].as_str().unwrap().to_owned()
    }
}

impl ServedHost {
    pub(super) fn start() -> Self {
        Self::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut ApiSettings)) -> Self {
        let mut settings = ApiSettings::default();
        settings.token = Some(BearerToken::new(TOKEN.as_bytes()).unwrap());
        change(&mut settings);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut options = Options::default();
        options.warm_python = false;
        options.raise_limit = None;
        let (host, server) = runtime.block_on(async {
            let host = Host::start(options).await.unwrap();
            let listening = ListeningSocket::from_fd(OwnedFd::from(listener)).unwrap();
            let server = HttpServer::start(host.clone(), vec![listening], settings);
            (host, server)
        });
        Self {
            host,
            address,
            server,
            runtime,
        }
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Sends these bytes and reads the whole response.
    pub(super) fn raw(&self, bytes: &[u8]) -> String {
        self.raw_then(bytes, |_| {})
    }

    /// The same, then shuts down the write side: to the server the client has gone away.
    pub(super) fn raw_and_gone(&self, bytes: &[u8]) -> String {
        self.raw_then(bytes, |stream| {
            let _enough = stream.shutdown(Shutdown::Write);
        })
    }

    fn raw_then(&self, bytes: &[u8], then: impl FnOnce(&TcpStream)) -> String {
        let mut stream = self.connect();
        // The server may close early; the rest is not sent.
        let _enough = stream.write_all(bytes);
        then(&stream);
        let mut all = Vec::new();
        let _reset = stream.read_to_end(&mut all);
        String::from_utf8_lossy(&all).into_owned()
    }

    /// A whole request with the token.
    pub(super) fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        self.send_with(method, path, body, "")
    }

    /// With these further header lines, each with its end.
    pub(super) fn send_with(&self, method: &str, path: &str, body: &str, more: &str) -> Answer {
        let mut stream = self.connect();
        let request = self.request(method, path, body, more);
        stream.write_all(request.as_bytes()).unwrap();
        read_answer(stream)
    }

    pub(super) fn request(&self, method: &str, path: &str, body: &str, more: &str) -> String {
        let media_type = match body {
            "" => "",
            _ => "content-type: application/json\r\n",
        };
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n{media_type}content-length: {}\r\n{more}\r\n{body}",
            self.address,
            body.len()
        )
    }

    /// Opens a bash on pipes and returns its id.
    pub(super) fn bash(&self) -> String {
        let body = r#"{"program":"bash","channel":"pipes","ready_within_ms":20000}"#;
        let answer = self.send("POST", "/v1/sessions", body);
        assert_eq!(answer.status, 201, "{answer:?}");
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        let location = format!("location: /v1/sessions/{id}");
        assert!(answer.head.contains(&location), "{answer:?}");
        id
    }

    pub(super) fn exec(&self, id: &str, code: &str) -> Value {
        let body = serde_json::json!({"code": code, "timeout_ms": 20_000}).to_string();
        let answer = self.send("POST", &format!("/v1/sessions/{id}/exec"), &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Polls until the condition holds.
    pub(super) fn eventually(&self, what: &str, mut holds: impl FnMut(&Host) -> bool) {
        testkit::wait_until(what, || holds(&self.host));
    }

    /// The end of it all.
    pub(super) fn stop(self) -> Vec<fdguard_host::receipt::Receipt> {
        self.runtime.block_on(async {
            self.server.close();
            self.server.release().await;
            let receipts = self.host.shut_down().await;
            assert!(self.server.ended(LONG).await, "connections are left");
            receipts
        })
    }
}

/// Reads a response until its connection ends.
pub(super) fn read_answer(stream: TcpStream) -> Answer {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let mut line = String::new();
        let count = reader.read_line(&mut line).unwrap();
        if count == 0 || line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status in {head:?}"));
    let mut body = Vec::new();
    reader.read_to_end(&mut body).unwrap();
    let body = match head.contains("transfer-encoding: chunked") {
        true => unchunk(&body),
        false => body,
    };
    let body = String::from_utf8(body).unwrap();
    Answer { status, head, body }
}

fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n").unwrap();
        let length = std::str::from_utf8(&bytes[..end]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        bytes = &bytes[end + 2..];
        if length == 0 {
            return whole;
        }
        whole.extend_from_slice(&bytes[..length]);
        bytes = &bytes[length + 2..];
    }
}

/// The events of a stream: their names and their data.
pub(super) fn events(text: &str) -> Vec<(String, Value)> {
    let blocks = text.split("\n\n").filter(|block| block.contains("event:"));
    let field = |block: &str, name: &str| {
        let lines = block.lines().filter_map(|line| line.strip_prefix(name));
        lines.map(str::trim).collect::<Vec<_>>().join("\n")
    };
    blocks
        .map(|block| {
            let data = serde_json::from_str(&field(block, "data:")).unwrap();
            (field(block, "event:"), data)
        })
        .collect()
}

/// Descriptors of this process.
pub(super) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}
