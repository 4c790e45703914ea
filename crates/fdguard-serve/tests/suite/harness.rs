//! A serving fdguard in this process, and a small HTTP client.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fdguard_core::bearer::BearerToken;
use fdguard_core::config::{Levels, Suppressions};
use fdguard_core::log_event::LogEvent;
use fdguard_core::playbook::Playbook;
use fdguard_core::rule::RuleSettings;
use fdguard_serve::{PushOptions, ServeOptions, Serving, StoreOptions, WebSettings};
use serde_json::Value;
use tempfile::TempDir;
use testkit::VictimLaunch;

pub(crate) const VIEW: &str = "a-token-for-viewing-0123456789";
pub(crate) const ACT: &str = "a-token-for-acting-0123456789";
/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The command of this test's victims. A server sees the whole machine, and with it the victims of
/// other tests: under a name of their own they are a service of their own.
pub(crate) fn command() -> String {
    format!("lk{}", std::process::id())
}

/// A victim that leaks on request, under that name.
pub(crate) fn leaker() -> VictimLaunch {
    leaker_named(&command())
}

/// The same under another name.
pub(crate) fn leaker_named(name: &str) -> VictimLaunch {
    let dir = std::env::temp_dir().join(format!("fdguard-serve-{}", std::process::id()));
    let path = dir.join(name);
    if !path.exists() {
        std::fs::create_dir_all(&dir).unwrap();
        std::os::unix::fs::symlink(testkit::victim_path("leaker"), &path).unwrap();
    }
    VictimLaunch::program(&path)
}

/// A serving fdguard.
pub(crate) struct Server {
    serving: Option<Serving>,
    pub(crate) address: SocketAddr,
    pub(crate) state: TempDir,
    log: Arc<Mutex<Vec<String>>>,
}

/// The options of tests: fast, without a budget.
pub(crate) fn options(state: &Path) -> ServeOptions {
    ServeOptions {
        host: "test-host".to_owned(),
        every: Duration::from_millis(50),
        budget: 1.0,
        max_watched: 256,
        resolve_after: Duration::from_secs(2),
        sample_every: Duration::from_millis(100),
        history: Some(StoreOptions {
            path: state.join("history.db"),
            keep: Duration::from_secs(86_400),
            max_disk: 64 << 20,
        }),
        evidence: None,
        alertmanager: None,
        webhook: None,
        push: PushOptions::default(),
        trace: None,
        fleet: None,
        program: None,
        scratch: None,
        web: WebSettings {
            view: Some(BearerToken::new(VIEW.as_bytes()).unwrap()),
            act: Some(BearerToken::new(ACT.as_bytes()).unwrap()),
            public_metrics: false,
            hosts: Vec::new(),
            origins: Vec::new(),
            max_connections: 64,
            max_series: 10_000,
            tls: None,
        },
    }
}

pub(crate) fn settings() -> RuleSettings {
    RuleSettings {
        levels: Levels::default(),
        expectations: Vec::new(),
        suppressions: Suppressions::default(),
        playbook: Playbook::embedded(),
        today: "2026-11-18".parse().unwrap(),
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut ServeOptions)) -> Self {
        Self::in_dir(tempfile::tempdir().unwrap(), change)
    }

    pub(crate) fn in_dir(state: TempDir, change: impl FnOnce(&mut ServeOptions)) -> Self {
        let mut options = options(state.path());
        change(&mut options);
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&log);
        let sink = Arc::new(move |event: &LogEvent| lines.lock().unwrap().push(event.line()));
        let serving = Serving::start(options, settings(), vec![socket.into()], sink).unwrap();
        Self {
            address: serving.addresses()[0],
            serving: Some(serving),
            state,
            log,
        }
    }

    /// Stops it and returns its directory.
    pub(crate) fn stop(mut self) -> TempDir {
        self.serving.take().unwrap().stop();
        std::mem::replace(&mut self.state, tempfile::tempdir().unwrap())
    }

    /// Lines of the log so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// A request with a token: status, headers and body.
    pub(crate) fn request(
        &self,
        head: &str,
        token: Option<&str>,
        body: &str,
    ) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let token = token.map_or_else(String::new, |it| format!("Authorization: Bearer {it}\r\n"));
        let host = self.address;
        let length = body.len();
        // In one piece: the server may answer a part of a request and close.
        let request = format!(
            "{head} HTTP/1.1\r\nHost: {host}\r\n{token}Content-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        answer(&mut stream)
    }

    /// A document.
    pub(crate) fn json(&self, path: &str) -> Value {
        let (status, _, body) = self.request(&format!("GET {path}"), Some(VIEW), "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Waits until the overview has what `find` looks for.
    pub(crate) fn wait<T>(&self, what: &str, mut find: impl FnMut(&Value) -> Option<T>) -> T {
        testkit::wait_for(what, || find(&self.json("/api/v1/overview")))
    }

    /// Waits for this many more ticks.
    pub(crate) fn ticks(&self, more: u64) {
        let ticks = |overview: &Value| overview["own"]["ticks"].as_u64().unwrap();
        let before = ticks(&self.json("/api/v1/overview"));
        self.wait("ticks", |overview| {
            (ticks(overview) >= before + more).then_some(())
        });
    }

    /// A stream of server-sent events.
    pub(crate) fn events(&self) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let host = self.address;
        write!(
            stream,
            "GET /api/v1/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {VIEW}\r\n\r\n"
        )
        .unwrap();
        BufReader::new(stream)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.stop();
        }
    }
}

/// Reads a whole answer.
pub(crate) fn answer(stream: &mut impl std::io::Read) -> (u16, String, String) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let mut line = String::new();
        let length = reader.read_line(&mut line).unwrap();
        if length == 0 || line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let mut body = Vec::new();
    // A connection that is reset after the answer is no failure of the answer.
    drop(reader.read_to_end(&mut body));
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    let body = String::from_utf8_lossy(&body).into_owned();
    let body = if head.to_lowercase().contains("transfer-encoding: chunked") {
        unchunk(&body)
    } else {
        body
    };
    (status.unwrap_or(0), head, body)
}

fn unchunk(body: &str) -> String {
    let mut rest = body;
    let mut text = String::new();
    while let Some((size, behind)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 || behind.len() < size {
            break;
        }
        text.push_str(&behind[..size]);
        rest = behind[size..].trim_start_matches("\r\n");
    }
    text
}

/// The watched process with this pid.
pub(crate) fn watched(overview: &Value, pid: u32) -> Option<Value> {
    let all = overview["watched"].as_array()?;
    all.iter().find(|one| one["pid"] == pid).cloned()
}

/// The finding about this process.
pub(crate) fn finding(overview: &Value, pid: u32, rule: &str) -> Option<Value> {
    let all = overview["findings"].as_array()?;
    let is_it = |one: &&Value| one["finding"]["pid"] == pid && one["rule"] == rule;
    all.iter().find(is_it).cloned()
}
