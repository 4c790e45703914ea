use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use super::{BindError, Listen, ListenAddress};

fn listen(text: &str) -> Listen {
    text.parse().unwrap()
}

#[test]
fn texts_and_what_they_mean() {
    for (text, meaning) in [
        ("tcp:8787", "tcp:127.0.0.1:8787"),
        ("tcp:localhost:8787", "tcp:127.0.0.1:8787"),
        ("tcp:127.0.0.1:8787", "tcp:127.0.0.1:8787"),
        ("tcp:0.0.0.0:80", "tcp:0.0.0.0:80"),
        ("tcp:[::1]:80", "tcp:[::1]:80"),
        ("tcp:*:80", "tcp:*:80"),
        ("web=tcp:0", "web=tcp:127.0.0.1:0"),
        ("unix:/run/a=b.sock", "unix:/run/a=b.sock"),
        ("admin=unix:/run/x,mode=660", "admin=unix:/run/x,mode=0660"),
        ("unix:/run/a,b", "unix:/run/a,b"),
    ] {
        let parsed = listen(text);
        assert_eq!(parsed.to_string(), meaning, "{text}");
        assert_eq!(listen(meaning), parsed, "{text}");
    }
}

#[test]
fn what_makes_no_sense_is_told_in_one_line() {
    for text in [
        "",
        "8787",
        "tcp:",
        "tcp:65536",
        "tcp:-1",
        "tcp:::1:80",
        "tcp:[::1]",
        "tcp:example.org:80",
        "unix:",
        "unix:/x,mode=9",
        "unix:/x,mode=7777",
        "=tcp:80",
        "a\tb=tcp:80",
        "udp:53",
    ] {
        let error = text.parse::<Listen>().unwrap_err().to_string();
        assert!(!error.contains('\n') && error.contains(": "), "{error}");
    }
}

#[test]
fn a_port_is_bound_close_on_exec_and_answers() {
    let bound = listen("tcp:0").bind().unwrap();
    let flags = rustix::io::fcntl_getfd(&bound.fd).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    let status = rustix::fs::fcntl_getfl(&bound.fd).unwrap();
    assert!(!status.contains(rustix::fs::OFlags::NONBLOCK));
    let listener = TcpListener::from(bound.fd.try_clone().unwrap());
    let address = listener.local_addr().unwrap();
    assert!(address.ip().is_loopback());
    TcpStream::connect(address).unwrap();

    let again = listen(&format!("tcp:{}", address.port())).bind();
    assert!(matches!(again, Err(BindError::Held { .. })), "{again:?}");
}

#[test]
fn a_port_is_bound_again_while_old_connections_linger() {
    let bound = listen("tcp:0").bind().unwrap();
    let listener = TcpListener::from(bound.fd.try_clone().unwrap());
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    // The server closes first, so the connection lingers on this side.
    drop(listener.accept().unwrap());
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    drop((listener, bound, client));
    listen(&format!("tcp:{}", address.port())).bind().unwrap();
}

#[test]
fn all_interfaces_are_both_kinds_of_addresses() {
    let bound = listen("tcp:*:0").bind().unwrap();
    let address = TcpListener::from(bound.fd).local_addr();
    let address = address.unwrap();
    assert!(address.ip().is_unspecified());
    if !address.is_ipv6() {
        return testkit::skip("no IPv6 on this machine");
    }
    let bound = listen("tcp:*:0").bind().unwrap();
    let port = TcpListener::from(bound.fd.try_clone().unwrap());
    let port = port.local_addr().unwrap().port();
    TcpStream::connect(("127.0.0.1", port)).unwrap();
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_a_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let spec = Listen {
        name: None,
        at: ListenAddress::Unix(path.clone()),
        mode: Some(0o600),
    };
    // std leaves the file behind, as a killed server does.
    let live = UnixListener::bind(&path).unwrap();
    let conflict = spec.bind();
    assert!(matches!(conflict, Err(BindError::Held { .. })));
    drop(live);
    assert!(path.exists());
    let bound = spec.bind().unwrap();
    UnixStream::connect(&path).unwrap();
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(bound);
    assert!(!path.exists(), "the file goes with the socket");
}

#[test]
fn a_datagram_socket_at_the_path_is_somebody_elses() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _live = UnixDatagram::bind(&path).unwrap();
    let spec = listen(&format!("unix:{}", path.display()));
    assert!(matches!(spec.bind(), Err(BindError::Held { .. })));
    assert!(path.exists());
}

#[test]
fn a_file_that_is_no_socket_is_never_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    let spec = listen(&format!("unix:{}", path.display()));
    assert!(matches!(spec.bind(), Err(BindError::NoSocket { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"data");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let spec = listen(&format!("unix:{}", link.display()));
    assert!(matches!(spec.bind(), Err(BindError::NoSocket { .. })));
    assert!(path.exists() && link.symlink_metadata().is_ok());
}

#[test]
fn a_file_that_somebody_else_put_there_meanwhile_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let bound = listen(&format!("unix:{}", path.display())).bind().unwrap();
    std::fs::rename(&path, dir.path().join("moved")).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(bound);
    assert!(path.exists());
}

#[test]
fn while_somebody_replaces_it_it_is_held() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    let lock = std::fs::File::open(dir.path()).unwrap();
    let operation = rustix::fs::FlockOperation::LockExclusive;
    rustix::fs::flock(&lock, operation).unwrap();
    let spec = listen(&format!("unix:{}", path.display()));
    assert!(matches!(spec.bind(), Err(BindError::Held { .. })));
    drop(lock);
    spec.bind().unwrap();
}
