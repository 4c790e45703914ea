//! A parent with children: three pipes and a handle for each. Arguments: how many running ones (4),
//! how many zombies (2). The line adds `children: [{pid, zombie}]`. The children end with this
//! process.

use std::env;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use serde_json::{Value, json};
use testkit::{VictimReport, is_root, next_line};

fn main() -> io::Result<()> {
    let mut args = env::args().skip(1);
    let first = args.next();
    match first.as_deref() {
        Some("stay") => {
            VictimReport::say(&json!("here"))?;
            while next_line()?.is_some() {}
            return Ok(());
        }
        Some("end") => return Ok(()),
        _ => {}
    }
    let running = amount(first, 4)?;
    let zombies = amount(args.next(), 2)?;
    let mut report = VictimReport::new()?;
    let mut children = Vec::new();
    for index in 0..running + zombies {
        children.push(child(&mut report, index >= running)?);
    }
    let told: Vec<Value> = children
        .iter()
        .zip(0..)
        .map(|(child, index)| json!({"pid": child.id(), "zombie": index >= running}))
        .collect();
    report.with("children", told).announce_and_wait()?;
    drop(report);
    for mut child in children {
        child.wait()?;
    }
    Ok(())
}

fn amount(arg: Option<String>, default: u32) -> io::Result<u32> {
    arg.map_or(Ok(default), |arg| arg.parse().map_err(io::Error::other))
}

fn child(report: &mut VictimReport, zombie: bool) -> io::Result<Child> {
    let mut child = Command::new(env::current_exe()?)
        .arg(if zombie { "end" } else { "stay" })
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let id = child.id();
    let pid = i32::try_from(id).map_err(io::Error::other)?;
    let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("process number zero"))?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    if zombie {
        waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        )?;
    }
    if let (Some(said), false) = (&mut child.stdout, zombie) {
        // A spawn returns before the kernel has closed the close-on-exec descriptors, including the
        // other children's pipes: the child itself must report that it runs.
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.push(0);
            let end = line.len() - 1;
            said.read_exact(&mut line[end..])?;
        }
    }
    let ends: [(Option<OwnedFd>, &str, u32); 3] = [
        (child.stdin.take().map(Into::into), "write", 0),
        (child.stdout.take().map(Into::into), "read", 1),
        (child.stderr.take().map(Into::into), "read", 2),
    ];
    for (fd, end, at_child) in ends {
        let fd = fd.ok_or_else(|| io::Error::other("not a pipe"))?;
        let holding = report.hold(&format!("pipe to stream {at_child} of a child"), "pipe", fd)?;
        holding.with("end", end);
        if !zombie {
            holding.with("peer", json!([{"pid": id, "fd": at_child}]));
        } else if is_root() {
            // Only root sees every process and can know that the other end has no holder.
            holding.with("peer", json!([]));
        }
    }
    report
        .hold("handle of a child", "pidfd", handle)?
        .with("pid", id)
        .with("alive", !zombie);
    Ok(child)
}
