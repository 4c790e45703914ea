//! Unix-domain sockets: unnamed, with a path, with an abstract name.

use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde_json::{Value, json};
use testkit::{VictimHolding, VictimReport, number, text};

pub(crate) fn open(report: &mut VictimReport, dir: &Path) -> io::Result<()> {
    let (one, other) = UnixStream::pair()?;
    pair(report, "stream", one, other)?;
    let (one, other) = UnixDatagram::pair()?;
    pair(report, "dgram", one, other)?;
    let flags = SocketFlags::CLOEXEC;
    let kind = SocketType::SEQPACKET;
    let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
    pair(report, "seqpacket", one, other)?;
    with_path(report, dir)?;
    with_abstract_name(report)?;
    alone(report, dir)
}

fn pair<S: AsFd + Into<std::os::fd::OwnedFd>>(
    report: &mut VictimReport,
    kind: &str,
    one: S,
    other: S,
) -> io::Result<()> {
    let (first, second) = (peer(&one, Value::Null)?, peer(&other, Value::Null)?);
    let holding = report.hold(&format!("unix {kind} pair, one"), "unix", one)?;
    say(holding, kind, "connected", Value::Null).with("peer", second);
    let holding = report.hold(&format!("unix {kind} pair, other"), "unix", other)?;
    say(holding, kind, "connected", Value::Null).with("peer", first);
    Ok(())
}

fn with_path(report: &mut VictimReport, dir: &Path) -> io::Result<()> {
    let path = dir.join("listener.sock");
    let listener = UnixListener::bind(&path)?;
    let client = UnixStream::connect(&path)?;
    let (server, _) = listener.accept()?;
    let (at_client, at_server) = (peer(&client, Value::Null)?, peer(&server, text(&path))?);
    let holding = report.hold("unix, listening at a path", "unix", listener)?;
    say(holding, "stream", "listening", text(&path)).with("peer", Value::Null);
    let holding = report.hold("unix, client of a path", "unix", client)?;
    say(holding, "stream", "connected", Value::Null).with("peer", at_server);
    let holding = report.hold("unix, server of a path", "unix", server)?;
    say(holding, "stream", "connected", text(&path)).with("peer", at_client);
    Ok(())
}

fn with_abstract_name(report: &mut VictimReport) -> io::Result<()> {
    let name = format!("fdguard-victim-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name)?;
    let listener = UnixListener::bind_addr(&address)?;
    let holding = report.hold("unix, listening at an abstract name", "unix", listener)?;
    say(holding, "stream", "listening", format!("@{name}").into());
    Ok(())
}

fn alone(report: &mut VictimReport, dir: &Path) -> io::Result<()> {
    let path = dir.join("datagram.sock");
    let socket = UnixDatagram::bind(&path)?;
    let holding = report.hold("unix datagram, bound", "unix", socket)?;
    say(holding, "dgram", "unconnected", text(&path)).with("peer", Value::Null);
    let holding = report.hold("unix datagram, unbound", "unix", UnixDatagram::unbound()?)?;
    say(holding, "dgram", "unconnected", Value::Null).with("peer", Value::Null);

    let (widowed, end) = UnixStream::pair()?;
    drop(end);
    report.hold("unix stream, peer gone", "unix", widowed)?;
    Ok(())
}

fn peer(socket: impl AsFd, path: Value) -> io::Result<Value> {
    let ino = rustix::fs::fstat(&socket)?.st_ino;
    let holder = json!({"pid": std::process::id(), "fd": number(socket)});
    Ok(json!({"ino": ino, "path": path, "holders": [holder]}))
}

fn say<'h>(
    holding: &'h mut VictimHolding,
    kind: &str,
    state: &str,
    path: Value,
) -> &'h mut VictimHolding {
    holding
        .with("kind", kind)
        .with("state", state)
        .with("path", path)
}
