//! Sockets of the rarer families.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, ipproto, netlink};
use testkit::{VictimReport, sys};

pub(crate) fn open(report: &mut VictimReport) -> io::Result<()> {
    // protocol 0 of netlink is ROUTE
    let port = std::process::id();
    let socket = open_one(AddressFamily::NETLINK, SocketType::RAW, None);
    let bound = socket.and_then(|socket| sys::bind_netlink(&socket, port).map(|()| socket));
    if let Some(holding) = report.hold_if_given("netlink, routes", "netlink", bound)? {
        holding.with("port", port);
    }
    let uevents = Some(netlink::KOBJECT_UEVENT);
    let cases = [
        (
            "netlink, device events",
            "netlink",
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            uevents,
        ),
        (
            "packet socket",
            "packet",
            AddressFamily::PACKET,
            SocketType::DGRAM,
            None,
        ),
        (
            "raw socket",
            "raw",
            AddressFamily::INET,
            SocketType::RAW,
            Some(ipproto::ICMP),
        ),
        (
            "raw socket, IPv6",
            "raw",
            AddressFamily::INET6,
            SocketType::RAW,
            Some(ipproto::ICMPV6),
        ),
        (
            "vsock",
            "vsock",
            AddressFamily::VSOCK,
            SocketType::STREAM,
            None,
        ),
    ];
    for (what, class, family, kind, protocol) in cases {
        report.hold_if_given(what, class, open_one(family, kind, protocol))?;
    }
    Ok(())
}

fn open_one(
    family: AddressFamily,
    kind: SocketType,
    protocol: Option<Protocol>,
) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(
        family,
        kind,
        SocketFlags::CLOEXEC,
        protocol,
    )?)
}
