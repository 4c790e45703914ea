//! Starts itself again in new network, process and mount namespaces. Inside, it listens on TCP and
//! holds a file on a mount that is not visible outside. The line adds `inside`: the inner line,
//! with `pid` as seen from outside and `inner_pid` as seen from inside. Needs root.

use std::env;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;
use serde_json::{Value, json};
use testkit::{VictimReport, sys};

fn main() -> io::Result<()> {
    if env::args().nth(1).as_deref() == Some("inside") {
        return inside();
    }
    sys::unshare(UnshareFlags::NEWNET | UnshareFlags::NEWPID | UnshareFlags::NEWNS)?;
    let mut child = Command::new(env::current_exe()?)
        .arg("inside")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let missing = || io::Error::other("not a pipe");
    let stdin = child.stdin.take().ok_or_else(missing)?;
    let mut stdout = BufReader::new(child.stdout.take().ok_or_else(missing)?);
    let mut line = String::new();
    stdout.read_line(&mut line)?;
    let mut told: Value = serde_json::from_str(&line)?;
    told["inner_pid"] = told["pid"].take();
    told["pid"] = child.id().into();

    let mut report = VictimReport::new()?;
    report
        .hold("pipe to the inner one", "pipe", stdin)?
        .with("end", "write")
        .with("peer", json!([{"pid": child.id(), "fd": 0}]));
    report
        .hold("pipe from the inner one", "pipe", stdout.into_inner())?
        .with("end", "read")
        .with("peer", json!([{"pid": child.id(), "fd": 1}]));
    report.with("inside", told).announce_and_wait()?;
    drop(report);
    child.wait().map(drop)
}

fn inside() -> io::Result<()> {
    let dir = env::temp_dir().canonicalize()?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    rustix::mount::mount("tmpfs", &dir, "tmpfs", MountFlags::empty(), None)?;
    let path = dir.join("seen-inside-only.txt");
    let mut report = VictimReport::new()?;
    let file = File::create(&path)?;
    file.set_len(77)?;
    report
        .hold("file on an inner mount", "regular", file)?
        .at(&path)
        .with("size", 77);
    // The loopback device is down in a new network namespace: no other address exists.
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let local = listener.local_addr()?;
    report
        .hold("listener in an inner network", "tcp:LISTEN", listener)?
        .with("local", local.to_string())
        .with("state", "LISTEN");
    report.announce_and_wait()
}
