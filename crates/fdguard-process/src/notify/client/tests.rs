use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use super::{Heartbeat, NotifyClient, watchdog_interval};
use crate::notify::{NotifyMessage, Watchdog};

fn ready() -> NotifyMessage {
    NotifyMessage {
        ready: true,
        ..NotifyMessage::default()
    }
}

fn status(text: &str) -> NotifyMessage {
    NotifyMessage {
        status: Some(text.to_owned()),
        ..NotifyMessage::default()
    }
}

fn receive(socket: &UnixDatagram) -> NotifyMessage {
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer).unwrap();
    NotifyMessage::parse(&buffer[..length])
}

#[test]
fn one_message_is_one_datagram_to_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let parent = UnixDatagram::bind(&path).unwrap();
    let mut client = NotifyClient::at(path.as_os_str()).unwrap();
    let now = Instant::now();
    assert_eq!(client.tell(&ready(), now), None);
    assert_eq!(client.tell(&status("up"), now), None);
    assert_eq!(receive(&parent), ready());
    assert_eq!(receive(&parent), status("up"));
}

#[test]
fn an_abstract_name_begins_with_an_at() {
    use std::os::linux::net::SocketAddrExt as _;
    let name = format!("fdguard-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let parent = UnixDatagram::bind_addr(&address).unwrap();
    let mut client = NotifyClient::at(OsStr::new(&format!("@{name}"))).unwrap();
    assert_eq!(client.tell(&ready(), Instant::now()), None);
    assert!(receive(&parent).ready);
}

#[test]
fn addresses_that_we_cannot_reach_are_a_gap_with_the_reason() {
    for (address, word) in [
        ("vsock:2:1234", "vsock"),
        ("vsock-stream:2:1234", "vsock"),
        ("relative", "not a path"),
        ("@", "not a path"),
    ] {
        let gap = NotifyClient::at(OsStr::new(address)).unwrap_err();
        assert!(gap.why.contains(word), "{gap:?}");
    }
    let long = format!("/{}", "x".repeat(200));
    assert!(NotifyClient::at(OsStr::new(&long)).is_err());
}

#[test]
fn a_parent_that_is_gone_costs_one_warning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nobody");
    let mut client = NotifyClient::at(path.as_os_str()).unwrap();
    let now = Instant::now();
    let gap = client.tell(&ready(), now).unwrap();
    assert!(gap.why.contains("nobody"), "{gap:?}");
    assert_eq!(client.tell(&status("x"), now), None);
    assert_eq!((client.lost(), client.due()), (2, None));
    // When it comes back, it gets messages again.
    let parent = UnixDatagram::bind(&path).unwrap();
    assert_eq!(client.tell(&ready(), now), None);
    assert!(receive(&parent).ready);
}

#[test]
fn a_parent_that_does_not_read_never_blocks_and_gets_ready_later() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let parent = UnixDatagram::bind(&path).unwrap();
    let mut client = NotifyClient::at(path.as_os_str()).unwrap();
    let now = Instant::now();
    let mut sent = 0u64;
    let gap = loop {
        if let Some(gap) = client.tell(&status("full?"), now) {
            break gap;
        }
        sent += 1;
        assert!(sent < 100_000, "the queue of a socket is finite");
    };
    assert!(gap.remedy.contains("keeps running"), "{gap:?}");
    assert_eq!(client.tell(&ready(), now), None);
    assert!(client.due().is_some(), "ready is owed");
    for _ in 0..sent {
        assert!(receive(&parent).status.is_some());
    }
    assert_eq!(client.poll(now), None);
    assert!(client.due().is_some(), "not before its time");
    assert_eq!(client.poll(client.due().unwrap()), None);
    assert!(receive(&parent).ready);
    assert_eq!(client.due(), None);
}

#[test]
fn what_is_owed_is_given_up_after_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let _parent = UnixDatagram::bind(&path).unwrap();
    let mut client = NotifyClient::at(path.as_os_str()).unwrap();
    let now = Instant::now();
    while client.tell(&status("full?"), now).is_none() {}
    let lost = client.lost();
    client.tell(&ready(), now);
    let mut turns = 0;
    while let Some(at) = client.due() {
        client.poll(at);
        turns += 1;
        assert!(turns <= 100, "it would try for ever");
    }
    assert_eq!(client.lost(), lost + 1);
}

#[test]
fn r27_the_watchdog_is_ours_only_if_the_pid_is() {
    let asked = |pairs: &[(&str, &str)]| {
        let map: HashMap<String, OsString> = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), OsString::from(value)))
            .collect();
        watchdog_interval(|name| map.get(name).cloned(), 42)
    };
    let second = Some(Duration::from_secs(1));
    assert_eq!(asked(&[]), Ok(None));
    assert_eq!(asked(&[("WATCHDOG_USEC", "1000000")]), Ok(second));
    let ours = [("WATCHDOG_USEC", "1000000"), ("WATCHDOG_PID", "42")];
    assert_eq!(asked(&ours), Ok(second));
    let others = [("WATCHDOG_USEC", "1000000"), ("WATCHDOG_PID", "43")];
    assert_eq!(asked(&others), Ok(None));
    for wrong in ["0", "", "-1", "soon"] {
        let gap = asked(&[("WATCHDOG_USEC", wrong)]).unwrap_err();
        assert!(gap.why.contains("WATCHDOG_USEC"), "{gap:?}");
    }
    assert!(asked(&[("WATCHDOG_USEC", "1"), ("WATCHDOG_PID", "me")]).is_err());
}

#[test]
fn a_sign_of_life_is_due_at_half_the_interval() {
    let now = Instant::now();
    let mut heartbeat = Heartbeat::within(Duration::from_secs(10), now);
    assert!(heartbeat.beat(now));
    assert!(!heartbeat.beat(now + Duration::from_secs(4)));
    assert_eq!(heartbeat.due(), now + Duration::from_secs(5));
    assert!(heartbeat.beat(now + Duration::from_secs(5)));
    assert_eq!(Heartbeat::message().watchdog, Some(Watchdog::Ping));
}
