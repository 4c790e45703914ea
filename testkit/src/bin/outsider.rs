//! Holds sockets of a network namespace other than its own. With a user id as its argument, it then
//! becomes that user. Needs root.

use std::env;
use std::fs::File;
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{DumpableBehavior, Gid, Uid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use testkit::{VictimReport, sys};

fn main() -> io::Result<()> {
    let home = File::open("/proc/self/ns/net")?;
    sys::unshare(UnshareFlags::NEWNET)?;
    sys::raise_loopback()?;
    let mut report = VictimReport::new()?;
    let namespace = File::open("/proc/self/ns/net")?.metadata()?.ino();
    hold_inet(&mut report)?;
    hold_unix(&mut report)?;
    hold_rare(&mut report)?;
    let network = Some(LinkNameSpaceType::Network);
    rustix::thread::move_into_link_name_space(home.as_fd(), network)?;
    drop(home);
    if let Some(uid) = env::args().nth(1) {
        become_user(uid.parse().map_err(io::Error::other)?)?;
    }
    report.with("namespace", namespace).announce_and_wait()
}

fn hold_inet(report: &mut VictimReport) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let client = TcpStream::connect(address)?;
    let (server, _) = listener.accept()?;
    report
        .hold("listener", "tcp:LISTEN", listener)?
        .with("local", address.to_string())
        .with("state", "LISTEN");
    for (what, stream) in [("client", client), ("server", server)] {
        let ends = (stream.local_addr()?, stream.peer_addr()?);
        report
            .hold(what, "tcp:ESTABLISHED", stream)?
            .with("local", ends.0.to_string())
            .with("remote", ends.1.to_string())
            .with("state", "ESTABLISHED");
    }
    // Dropping one end of a second connection leaves the other in CLOSE_WAIT.
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let left = TcpStream::connect(listener.local_addr()?)?;
    drop(listener.accept()?);
    wait_for_end(&left)?;
    report
        .hold("half-closed", "tcp:CLOSE_WAIT", left)?
        .with("state", "CLOSE_WAIT");
    let unbound = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    report.hold("never bound", "tcp:UNBOUND", unbound)?;
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    let address = udp.local_addr()?.to_string();
    report.hold("udp", "udp", udp)?.with("local", address);
    Ok(())
}

fn wait_for_end(mut stream: &TcpStream) -> io::Result<()> {
    let read = io::Read::read(&mut stream, &mut [0; 1])?;
    assert_eq!(read, 0, "the end");
    Ok(())
}

fn hold_unix(report: &mut VictimReport) -> io::Result<()> {
    let name = format!("outsider-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name)?;
    let listener = UnixListener::bind_addr(&address)?;
    report
        .hold("unix listener", "unix", listener)?
        .with("path", format!("@{name}"))
        .with("kind", "stream")
        .with("state", "listening");
    let (one, other) = UnixStream::pair()?;
    for (what, end) in [("one end", one), ("other end", other)] {
        report
            .hold(what, "unix", end)?
            .with("kind", "stream")
            .with("state", "connected");
    }
    Ok(())
}

fn hold_rare(report: &mut VictimReport) -> io::Result<()> {
    let socket = |family, kind, protocol| -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        Ok(rustix::net::socket_with(family, kind, flags, protocol)?)
    };
    // NETLINK_ROUTE is 0, the same number as no protocol.
    let route = None;
    let netlink = socket(AddressFamily::NETLINK, SocketType::RAW, route)?;
    rustix::net::bind(&netlink, &SocketAddrNetlink::new(0, 0b101))?;
    report
        .hold("netlink", "netlink", netlink)?
        .with("protocol", "ROUTE")
        .with("groups", vec![1, 3]);
    let all = Some(rustix::net::eth::ALL);
    let packet = socket(AddressFamily::PACKET, SocketType::RAW, all)?;
    report
        .hold("packet", "packet", packet)?
        .with("protocol", "0x0003")
        .with("kind", "raw");
    Ok(())
}

fn become_user(id: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    // A process that changed its user cannot be read by that user unless it is dumpable.
    Ok(rustix::process::set_dumpable_behavior(
        DumpableBehavior::Dumpable,
    )?)
}
