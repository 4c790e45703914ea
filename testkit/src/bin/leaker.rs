//! Leaks on request. A line `N`, or `N KIND` with KIND one of `eventfd` (the default), `file`,
//! `socket`, `pipe`, opens N more (a pipe is two descriptors); `-N` closes the last N; `1 secrecy`
//! hides the process from other processes of its user, as ssh-agent does. The answer is
//! `{"opened", "closed", "count", "highest", "error"}`; `count` includes the standard streams.

use std::env;
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use serde_json::json;
use testkit::{VictimReport, next_line};

fn main() -> io::Result<()> {
    let dir = env::temp_dir().canonicalize()?;
    let mut report = VictimReport::new()?;
    let count = report.count();
    report.with("count", count).announce()?;
    let mut made = 0_u64;
    while let Some(line) = next_line()? {
        let (amount, kind) = line.split_once(' ').unwrap_or((&line, "eventfd"));
        let amount: i64 = amount.parse().map_err(io::Error::other)?;
        let (mut opened, mut closed, mut error) = (0, 0, None);
        for _ in 0..amount {
            made += 1;
            match leak(&mut report, &dir, kind, made) {
                Ok(()) => opened += 1,
                Err(refused) => {
                    error = Some(refused.to_string());
                    break;
                }
            }
        }
        for _ in amount..0 {
            closed += u32::from(report.release_last());
        }
        let count = report.count();
        let highest = report.highest();
        VictimReport::say(&json!({"opened": opened, "closed": closed, "count": count,
            "highest": highest, "error": error}))?;
    }
    Ok(())
}

fn leak(report: &mut VictimReport, dir: &Path, kind: &str, made: u64) -> io::Result<()> {
    match kind {
        "eventfd" => {
            let counter = eventfd(0, EventfdFlags::CLOEXEC)?;
            report.hold("leaked counter", "eventfd", counter)?;
        }
        "file" => {
            let file = File::create(dir.join(format!("leaked-{made:06}.log")))?;
            report.hold("leaked file", "regular", file)?;
        }
        "socket" => {
            let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
            let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
            report.hold("leaked socket", "tcp:UNBOUND", socket)?;
        }
        "pipe" => {
            let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            report.hold("leaked pipe, read end", "pipe", read)?;
            report.hold("leaked pipe, write end", "pipe", write)?;
        }
        "secrecy" => {
            use rustix::process::{DumpableBehavior, set_dumpable_behavior};
            set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        }
        other => return Err(io::Error::other(format!("no such kind: {other}"))),
    }
    Ok(())
}
