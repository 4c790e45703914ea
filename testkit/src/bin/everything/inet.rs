//! TCP in every state that lasts, and UDP.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use testkit::{VictimHolding, VictimReport, sys};

const V4: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
const V6: (Ipv6Addr, u16) = (Ipv6Addr::LOCALHOST, 0);
const FIN_WAIT2: u8 = 5;
const CLOSE: u8 = 7;
const CLOSE_WAIT: u8 = 8;

pub(crate) fn open(report: &mut VictimReport) -> io::Result<()> {
    let listener = TcpListener::bind(V4)?;
    established(report, &listener)?;
    half_closed(report, &listener)?;
    closed(report, &listener)?;
    waiting(report, &listener)?;
    let local = listener.local_addr()?;
    let holding = report.hold("TCP, listening", "tcp:LISTEN", listener)?;
    addresses(holding, Some(local), None).with("state", "LISTEN");
    idle(report)?;
    version_six(report)?;
    udp(report)
}

fn established(report: &mut VictimReport, listener: &TcpListener) -> io::Result<()> {
    let (mut client, server) = connected(listener)?;
    let (here, there) = (client.local_addr()?, client.peer_addr()?);
    client.write_all(b"hello")?;
    let mut unread = [0; 5];
    while server.peek(&mut unread)? < unread.len() {}
    let holding = report.hold("TCP, client", "tcp:ESTABLISHED", client)?;
    addresses(holding, Some(here), Some(there)).with("state", "ESTABLISHED");
    let holding = report.hold("TCP, server with unread bytes", "tcp:ESTABLISHED", server)?;
    addresses(holding, Some(there), Some(here))
        .with("state", "ESTABLISHED")
        .with("rx_queue", 5);
    Ok(())
}

fn half_closed(report: &mut VictimReport, listener: &TcpListener) -> io::Result<()> {
    let (client, server) = connected(listener)?;
    let (here, there) = (client.local_addr()?, client.peer_addr()?);
    client.shutdown(Shutdown::Write)?;
    while sys::tcp_state(&server)? != CLOSE_WAIT || sys::tcp_state(&client)? != FIN_WAIT2 {
        std::thread::yield_now();
    }
    let holding = report.hold("TCP, closed by us", "tcp:FIN_WAIT2", client)?;
    addresses(holding, Some(here), Some(there)).with("state", "FIN_WAIT2");
    let holding = report.hold("TCP, closed by the peer", "tcp:CLOSE_WAIT", server)?;
    addresses(holding, Some(there), Some(here)).with("state", "CLOSE_WAIT");
    Ok(())
}

/// A connection that both sides have shut down and not closed: in none of the kernel's tables.
fn closed(report: &mut VictimReport, listener: &TcpListener) -> io::Result<()> {
    let (client, server) = connected(listener)?;
    let (here, there) = (client.local_addr()?, client.peer_addr()?);
    client.shutdown(Shutdown::Both)?;
    server.shutdown(Shutdown::Both)?;
    while sys::tcp_state(&server)? != CLOSE || sys::tcp_state(&client)? != CLOSE {
        std::thread::yield_now();
    }
    let holding = report.hold("TCP, closed by both, by us first", "tcp:CLOSE", client)?;
    addresses(holding, Some(here), None).with("state", "CLOSE");
    let holding = report.hold(
        "TCP, closed by both, by the peer first",
        "tcp:CLOSE",
        server,
    )?;
    addresses(holding, Some(there), None).with("state", "CLOSE");
    Ok(())
}

/// A connection that was never accepted: it has one descriptor, the client's.
fn waiting(report: &mut VictimReport, listener: &TcpListener) -> io::Result<()> {
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (here, there) = (client.local_addr()?, client.peer_addr()?);
    let holding = report.hold("TCP, not accepted yet", "tcp:ESTABLISHED", client)?;
    addresses(holding, Some(here), Some(there)).with("state", "ESTABLISHED");
    Ok(())
}

fn idle(report: &mut VictimReport) -> io::Result<()> {
    let bound = socket(AddressFamily::INET, SocketType::STREAM)?;
    rustix::net::bind(&bound, &SocketAddr::from(V4))?;
    let local = rustix::net::getsockname(&bound)?.try_into()?;
    let holding = report.hold("TCP, bound only", "tcp:BOUND", bound)?;
    addresses(holding, Some(local), None).with("state", "BOUND");

    let unbound = socket(AddressFamily::INET, SocketType::STREAM)?;
    let holding = report.hold("TCP, unbound", "tcp:UNBOUND", unbound)?;
    addresses(holding, None, None);
    Ok(())
}

fn version_six(report: &mut VictimReport) -> io::Result<()> {
    let Ok(listener) = TcpListener::bind(V6) else {
        let refused = Err(io::Error::other("no address"));
        return report
            .hold_if_given("IPv6", "tcp:LISTEN", refused)
            .map(drop);
    };
    let (client, server) = connected(&listener)?;
    let (here, there) = (client.local_addr()?, client.peer_addr()?);
    let holding = report.hold("TCP over IPv6, listening", "tcp:LISTEN", listener)?;
    addresses(holding, Some(there), None).with("state", "LISTEN");
    let holding = report.hold("TCP over IPv6, client", "tcp:ESTABLISHED", client)?;
    addresses(holding, Some(here), Some(there));
    let holding = report.hold("TCP over IPv6, server", "tcp:ESTABLISHED", server)?;
    addresses(holding, Some(there), Some(here));

    let unbound = socket(AddressFamily::INET6, SocketType::STREAM)?;
    let holding = report.hold("TCP over IPv6, unbound", "tcp:UNBOUND", unbound)?;
    addresses(holding, None, None);
    let socket = UdpSocket::bind(V6)?;
    let local = socket.local_addr()?;
    let holding = report.hold("UDP over IPv6, bound", "udp", socket)?;
    addresses(holding, Some(local), None);
    Ok(())
}

fn udp(report: &mut VictimReport) -> io::Result<()> {
    let (bound, connected) = (UdpSocket::bind(V4)?, UdpSocket::bind(V4)?);
    let (there, here) = (bound.local_addr()?, connected.local_addr()?);
    connected.connect(there)?;
    let holding = report.hold("UDP, bound", "udp", bound)?;
    addresses(holding, Some(there), None);
    let holding = report.hold("UDP, connected", "udp", connected)?;
    addresses(holding, Some(here), Some(there));
    let unbound = socket(AddressFamily::INET, SocketType::DGRAM)?;
    let holding = report.hold("UDP, unbound", "udp", unbound)?;
    addresses(holding, None, None);
    Ok(())
}

fn connected(listener: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    Ok((client, server))
}

fn socket(family: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(
        family,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

fn addresses(
    holding: &mut VictimHolding,
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
) -> &mut VictimHolding {
    holding
        .with("local", local.map(|address| address.to_string()))
        .with("remote", remote.map(|address| address.to_string()))
}
