//! Findings in a real Alertmanager.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use fdguard_serve::ReceiverUrl;
use serde_json::Value;
use tempfile::TempDir;

use super::fleet_engine::free_address;
use super::harness::{PATIENCE, Server, answer, command, leaker};

/// A running Alertmanager that notifies nobody. Drop ends it.
struct Alertmanager {
    child: Child,
    address: SocketAddr,
    _dir: TempDir,
}

impl Alertmanager {
    /// `None` if it is not installed.
    fn start() -> Option<Self> {
        if !testkit::have("prometheus-alertmanager") {
            testkit::skip("no prometheus-alertmanager: testkit/packages installs it");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("alertmanager.yml");
        let text = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n";
        std::fs::write(&config, text).unwrap();
        let address = free_address();
        let child = Command::new("prometheus-alertmanager")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.path={}", dir.path().display()))
            .arg(format!("--web.listen-address={address}"))
            // No cluster.
            .arg("--cluster.listen-address=")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self {
            child,
            address,
            _dir: dir,
        })
    }

    /// The alerts that are not over; `None` while it does not answer.
    fn alerts(&self) -> Option<Vec<Value>> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let host = self.address;
        let request =
            format!("GET /api/v2/alerts HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        std::io::Write::write_all(&mut stream, request.as_bytes()).ok()?;
        let (status, _, body) = answer(&mut stream);
        (status == 200).then(|| serde_json::from_str(&body).unwrap())
    }

    /// Those of this test's victim.
    fn own(&self) -> Option<Vec<Value>> {
        let mut alerts = self.alerts()?;
        alerts.retain(|alert| alert["labels"]["service"] == command().as_str());
        Some(alerts)
    }
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn alertmanager_has_an_alert_while_a_finding_is_open() {
    let Some(receiver) = Alertmanager::start() else {
        return;
    };
    let url = ReceiverUrl::parse(&format!("http://{}", receiver.address)).unwrap();
    let server = Server::with(|options| options.alertmanager = Some(url));
    let mut victim = leaker().nofile(60).start();
    victim.tell("54 file");
    let alert = testkit::wait_for("the alert", || receiver.own()?.into_iter().next());
    let labels = &alert["labels"];
    assert_eq!(labels["alertname"], "FdguardFinding");
    assert_eq!(labels["host"], "test-host");
    assert_eq!(labels["kind"], "command");
    assert!(
        labels["rule"].is_string() && labels["severity"].is_string(),
        "{alert}"
    );
    assert_eq!(alert["annotations"]["pid"], victim.pid().to_string());
    assert_eq!(alert["status"]["state"], "active");
    victim.finish();
    testkit::wait_until("its end", || {
        receiver.own().is_some_and(|alerts| alerts.is_empty())
    });
    let counts = &server.json("/api/v1/overview")["own"]["deliveries"];
    assert_eq!(counts["dropped"], 0, "{counts}");
}
