//! A small host with everything that is hard to show, for tests of screens and reports.

use std::time::Duration;

use fdguard_core::detail::OtherDetail;
use fdguard_core::growth::Growth;
use fdguard_core::host::{HostRow, HostView};
use fdguard_core::lint::{LintHit, Severity};
use fdguard_core::snapshot::{Ceiling, Ceilings, Limits, Process, Tier, Via};
use fdguard_core::{Class, Detail, FdEntry, Gap, Snapshot, Summary, TcpState, Text};

use super::Holdings;

fn row(pid: u32, ppid: u32, comm: &str, count: u64, soft: u64, table: u64) -> HostRow {
    HostRow {
        pid,
        ppid: Some(ppid),
        start_ticks: Some(u64::from(pid) * 10),
        comm: Text::from(comm),
        uid: Some(1000),
        zombie: false,
        count: Some(count),
        limits: Limits {
            soft: Some(soft),
            hard: Some(soft.max(4096)),
        },
        table_size: Some(table),
        workload: None,
    }
}

/// Ten processes: near the limit, near the same, past 1024, unknown, dead,
/// hostile, wide.
pub(crate) fn view() -> HostView {
    let zombie = HostRow {
        zombie: true,
        count: None,
        table_size: None,
        ..row(555, 4000, "git", 0, 1024, 64)
    };
    let hidden = HostRow {
        uid: Some(0),
        count: None,
        table_size: None,
        ..row(777, 1, "sshd", 0, 1024, 64)
    };
    HostView {
        taken_at: "2026-11-15T09:00:00Z".parse().ok(),
        rows: vec![
            row(1, 0, "systemd", 40, 1_073_741_816, 256),
            zombie,
            row(666, 1, "\u{1b}[2J\u{202e}exe", 12, 1024, 64),
            hidden,
            row(888, 1, "名前のプロセス", 760, 1024, 1024),
            row(900, 1, "nginx", 300, 65_536, 4096),
            row(950, 1, "python3", 960, 1024, 1024),
            row(4000, 1, "agent-host", 210, 1024, 256),
            row(4242, 4000, "codex", 998, 1024, 1024),
            row(4243, 4000, "node", 85, 1024, 128),
        ],
        host: Ceilings {
            files: Ceiling {
                used: Some(12_345),
                at: Some(100_000),
            },
            ..Ceilings::default()
        },
        gaps: vec![Gap::new(
            "count of 1 process",
            "permission denied",
            "run as root or with CAP_SYS_PTRACE",
        )],
    }
}

/// The same host after three minutes of watching, in which `codex` opened 12.
pub(crate) fn watched() -> (HostView, Growth) {
    let mut growth = Growth::new();
    growth.observe(Duration::ZERO, &earlier());
    let now = view();
    growth.observe(Duration::from_secs(180), &now);
    (now, growth)
}

/// The host three minutes before.
pub(crate) fn earlier() -> HostView {
    let mut view = view();
    for row in &mut view.rows {
        row.count = match (row.pid, row.count) {
            (4242, Some(count)) => Some(count - 12),
            (900, Some(count)) => Some(count + 3),
            (_, count) => count,
        };
    }
    view
}

/// Many processes.
pub(crate) fn crowd(size: u32) -> HostView {
    HostView {
        rows: (1..=size)
            .map(|pid| row(pid, pid / 3, "worker", u64::from(pid % 1000), 1024, 256))
            .collect(),
        ..view()
    }
}

/// What `codex` holds: pipes of children that were never released, sockets never closed.
pub(crate) fn holdings() -> Holdings {
    let mut fds = Vec::new();
    let mut hold = |class: Class, count: usize, target: &dyn Fn(usize) -> String| {
        for nth in 0..count {
            fds.push(FdEntry {
                fd: u32::try_from(fds.len()).unwrap(),
                class: class.clone(),
                target: Text::from(target(nth)),
                mode: None,
                cloexec: None,
                deleted: false,
                detail: Detail::Fields(OtherDetail::default()),
                id: None,
                shared_with: Vec::new(),
                shared_more: 0,
                open_file: None,
                flags: None,
            });
        }
    };
    hold(Class::Pipe, 687, &|nth| format!("pipe:[{nth}]"));
    hold(Class::Pidfd, 241, &|_| "pidfd".to_owned());
    hold(Class::Tcp(TcpState::CloseWait), 40, &|nth| {
        format!("10.0.0.5:{}→93.184.216.34:443", 40_000 + nth)
    });
    hold(Class::Regular, 30, &|nth| {
        format!("/home/user/.codex/sessions/2026/11/rollout-{nth}.jsonl")
    });
    let row = view().rows[8].clone();
    let snapshot = Snapshot {
        taken_at: "2026-11-15T09:00:00Z".parse().unwrap(),
        tier: Tier::Full,
        via: Via::Proc,
        process: Process {
            pid: row.pid,
            start_ticks: row.start_ticks,
            comm: row.comm.clone(),
            cmdline: vec!["codex".into(), "app-server".into()],
            children: Some(229),
            zombies: Some(0),
            ..Process::default()
        },
        limits: row.limits,
        count: row.count,
        table_size: row.table_size,
        host: view().host,
        fds: Some(fds),
        gaps: Vec::new(),
    };
    let mut summary = Summary::summarize(&snapshot);
    // Show one lint and one pattern, independent of the current rules.
    summary.lints = vec![LintHit {
        rule: "close-wait-pile",
        severity: Severity::Warning,
        message: "40 connections were closed by the peer and are still open here".to_owned(),
        fds: Vec::new(),
        fix: "close the connection when a read returns 0, and the response on every path",
    }];
    summary.patterns = vec!["3 pipes and 1 pidfd for each of 229 children".to_owned()];
    Holdings { snapshot, summary }
}
