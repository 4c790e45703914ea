//! Opens a listener that is not closed at exec and starts a child, which inherits it and stays.
//! The line adds `child: {pid, fds}` and `port`. A line `close` closes the listener here (answer
//! `{"closed": fd}`), so that only the child has the port.

use std::env;
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde_json::json;
use testkit::{VictimReport, next_line, number};

fn main() -> io::Result<()> {
    if env::args().nth(1).as_deref() == Some("stay") {
        VictimReport::say(&json!("here"))?;
        while next_line()?.is_some() {}
        return Ok(());
    }
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let listener = rustix::net::socket_with(family, kind, SocketFlags::empty(), None)?;
    rustix::net::bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    rustix::net::listen(&listener, 16)?;
    let local: SocketAddr = rustix::net::getsockname(&listener)?.try_into()?;
    let mut child = Command::new(env::current_exe()?)
        .arg("stay")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdin = child
        .stdin
        .take()
        .ok_or_else(|| io::Error::other("not a pipe"))?;
    // A spawn returns before the kernel has closed the close-on-exec descriptors: the child itself
    // must report that it runs.
    let mut said = child
        .stdout
        .take()
        .ok_or_else(|| io::Error::other("not a pipe"))?;
    said.read_exact(&mut [0])?;
    drop(said);

    let at = number(&listener);
    let mut report = VictimReport::new()?;
    report
        .hold("pipe to the child", "pipe", stdin)?
        .with("end", "write")
        .with("peer", json!([{"pid": child.id(), "fd": 0}]));
    report
        .hold("listener that the child has too", "tcp:LISTEN", listener)?
        .with("local", local.to_string())
        .with("state", "LISTEN");
    report
        .with("child", json!({"pid": child.id(), "fds": [0, 1, 2, at]}))
        .with("port", local.port());
    report.announce()?;
    while let Some(line) = next_line()? {
        if line == "close" && report.count() > 4 {
            report.release_last();
        }
        VictimReport::say(&json!({"closed": at}))?;
    }
    drop(report);
    child.wait().map(drop)
}
