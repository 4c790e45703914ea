//! Real servers with the Prometheus API: Prometheus, and VictoriaMetrics.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::harness::{PATIENCE, answer};

/// A running server. Drop ends it.
pub(crate) struct MetricEngine {
    child: Child,
    pub(crate) url: String,
    _dir: TempDir,
}

impl MetricEngine {
    /// Prometheus that scrapes these addresses and accepts remote write; `None` if it is not
    /// installed.
    pub(crate) fn prometheus(targets: &[SocketAddr]) -> Option<Self> {
        if !testkit::have("prometheus") {
            testkit::skip("no prometheus: testkit/packages installs it");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let targets: Vec<String> = targets.iter().map(|one| format!("'{one}'")).collect();
        let config = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\nscrape_configs: \
             [{{job_name: fdguard, static_configs: [{{targets: [{}]}}]}}]\n",
            targets.join(", ")
        );
        let file = dir.path().join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let address = free_address();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                dir.path().join("data").display()
            ))
            .arg("--web.enable-remote-write-receiver")
            .arg(format!("--web.listen-address={address}"));
        Some(Self::start(command, address, dir))
    }

    /// VictoriaMetrics, to which hosts push; `None` if it is not installed.
    pub(crate) fn victoria() -> Option<Self> {
        if !testkit::have("victoria-metrics") {
            testkit::skip("no victoria-metrics: testkit/packages installs it");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let address = free_address();
        let mut command = Command::new("victoria-metrics");
        command
            .arg(format!("-storageDataPath={}", dir.path().display()))
            .arg(format!("-httpListenAddr={address}"))
            // By default it hides the last 30 seconds.
            .arg("-search.latencyOffset=0s");
        Some(Self::start(command, address, dir))
    }

    fn start(mut command: Command, address: SocketAddr, dir: TempDir) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            url: format!("http://{address}"),
            _dir: dir,
        }
    }
}

impl Drop for MetricEngine {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// An address that was free a moment ago.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

/// Posts to a server and expects success.
pub(crate) fn post(url: &str, path: &str, body: &str) {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n");
    write!(stream, "{head}Connection: close\r\n\r\n{body}").unwrap();
    let (status, _, text) = answer(&mut stream);
    assert!((200..300).contains(&status), "{path}: {status} {text}");
}
