//! What a TLS library really writes into a database that got the number of its connection.

use std::path::Path;
use std::process::Command;

use fdguard_files::heal::{HealOutcome, HealPlan};
use fdguard_files::{FileVerdict, heal};
use fdguard_probe::Probe;

use super::{integrity, look};

/// Other code closes a connection's number, which the database then gets; the owner keeps using it.
const STALE: &str = r#"
import os, socket, sqlite3, ssl, sys, threading
version, path, how = getattr(ssl.TLSVersion, sys.argv[1]), sys.argv[2], sys.argv[3]
d = sqlite3.connect(path)
d.execute("CREATE TABLE t(a)")
d.execute("INSERT INTO t VALUES(1)")
d.commit()
d.close()
server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
server.load_cert_chain("cert.pem", "key.pem")
server.minimum_version = server.maximum_version = version
client = ssl.create_default_context()
client.check_hostname = False
client.verify_mode = ssl.CERT_NONE
a, b = socket.socketpair()
threading.Thread(target=lambda: server.wrap_socket(b, server_side=True).recv(10), daemon=True).start()
c = client.wrap_socket(a)
number = c.fileno()
os.close(number)
assert os.open(path, os.O_RDWR) == number
try:
    if how == "recv": c.recv(10)
    elif how == "close": c.unwrap()
    else: c.send(b"x" * 300)
except ssl.SSLError:
    pass
os._exit(0)
"#;

fn certificate(dir: &Path) -> bool {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=localhost",
        ])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(dir)
        .output();
    made.is_ok_and(|made| made.status.success())
}

/// Version, the owner's action, the finding, whether it can be healed.
const CASES: [(&str, &str, &str, bool); 5] = [
    (
        "TLSv1_3",
        "recv",
        "a TLS 1.3 alert (24 bytes) overwrites bytes 5..28 of the header",
        true,
    ),
    (
        "TLSv1_3",
        "close",
        "a TLS 1.3 alert (24 bytes) overwrites bytes 0..23 of the header",
        true,
    ),
    (
        "TLSv1_3",
        "send",
        "a TLS 1.2 or 1.3 data record (322 bytes) overwrites bytes 0..321",
        false,
    ),
    (
        "TLSv1_2",
        "recv",
        "a TLS 1.2 alert (31 bytes) overwrites bytes 5..35 of the header",
        true,
    ),
    (
        "TLSv1_2",
        "close",
        "a TLS 1.2 alert (31 bytes) overwrites bytes 0..30 of the header",
        true,
    ),
];

#[test]
fn r42_what_openssl_writes_is_named_and_healed() {
    let dir = tempfile::tempdir().unwrap();
    if !certificate(dir.path()) {
        testkit::skip("no openssl to make a certificate with");
        return;
    }
    for (version, how, text, heals) in CASES {
        let path = dir.path().join(format!("{version}-{how}.db"));
        let status = Command::new("python3")
            .args(["-c", STALE, version])
            .arg(&path)
            .arg(how)
            .current_dir(dir.path())
            .status();
        assert!(status.unwrap().success(), "{version} {how}");
        let found = look(&path);
        assert_eq!(found.verdict, FileVerdict::Damaged);
        assert!(
            found.summary.contains(text),
            "{version} {how}: {}",
            found.summary
        );
        let said = heal(&Probe::new().unwrap(), &path, &HealPlan::default()).unwrap();
        assert_eq!(
            said.outcome == HealOutcome::Healed,
            heals,
            "{version} {how}: {said:?}"
        );
        assert!(!heals || integrity(&path) == "ok");
    }
}
