//! Counts only: safe for a health endpoint. No paths, no peers, no arguments.

use std::io::Write;

use fdguard_core::summary::ClassCount;
use fdguard_core::wall::{CRITICAL_FROM, WARNING_ABOVE, Wall};
use fdguard_core::{Snapshot, Summary, Tier};
use jiff::Timestamp;
use serde::Serialize;

use super::json;
use super::state_line::number;
use crate::terminal::sanitize_str;

#[derive(Serialize)]
struct Counts<'a> {
    schema: &'static str,
    taken_at: Timestamp,
    tier: Tier,
    pid: u32,
    count: Option<u64>,
    soft: Option<u64>,
    hard: Option<u64>,
    percent_of_soft: Option<f64>,
    lowest: Option<u64>,
    highest: Option<u64>,
    table_size: Option<u64>,
    crossed_1024: Option<bool>,
    children: Option<u64>,
    zombies: Option<u64>,
    walls: &'a [Wall],
    classes: Option<&'a [ClassCount]>,
    lints: Vec<&'static str>,
    gaps: usize,
    #[serde(flatten)]
    health: Health,
}

/// The same under the names that other health endpoints use, so that it can be passed on unchanged.
#[derive(Serialize)]
struct Health {
    fd_count: Option<u64>,
    fd_soft_limit: Option<u64>,
    fd_hard_limit: Option<u64>,
    fd_usage_percent: Option<f64>,
    thread_count: Option<u64>,
    status: Option<&'static str>,
}

impl Health {
    fn of((snapshot, summary): &(Snapshot, Summary)) -> Self {
        let percent = summary.percent_of_soft;
        Self {
            fd_count: snapshot.count,
            fd_soft_limit: snapshot.limits.soft,
            fd_hard_limit: snapshot.limits.hard,
            fd_usage_percent: percent,
            thread_count: snapshot.process.threads,
            status: percent.map(|percent| match percent {
                p if p >= CRITICAL_FROM => "critical",
                p if p > WARNING_ABOVE => "warning",
                _ => "ok",
            }),
        }
    }
}

#[derive(Serialize)]
struct Many<'a> {
    schema: &'static str,
    count: Option<u64>,
    processes: Vec<Counts<'a>>,
}

impl<'a> Counts<'a> {
    fn of(one: &'a (Snapshot, Summary)) -> Self {
        let (snapshot, summary) = one;
        Self {
            schema: "fdguard.counts/1",
            taken_at: snapshot.taken_at,
            tier: snapshot.tier,
            pid: snapshot.process.pid,
            count: snapshot.count,
            soft: snapshot.limits.soft,
            hard: snapshot.limits.hard,
            percent_of_soft: summary.percent_of_soft,
            lowest: summary.lowest,
            highest: summary.highest,
            table_size: snapshot.table_size,
            crossed_1024: summary.crossed_1024,
            children: snapshot.process.children,
            zombies: snapshot.process.zombies,
            walls: &summary.walls,
            classes: summary.classes.as_deref(),
            // Only the names: messages may contain paths and peers.
            lints: summary.lints.iter().map(|hit| hit.rule).collect(),
            gaps: snapshot.gaps.len(),
            health: Health::of(one),
        }
    }
}

/// Writes one JSON document.
pub fn write_json(
    out: &mut dyn Write,
    snapshots: &[(Snapshot, Summary)],
    many: bool,
) -> anyhow::Result<()> {
    if let ([one], false) = (snapshots, many) {
        return json::write_line(out, &Counts::of(one));
    }
    let document = Many {
        schema: "fdguard.counts-list/1",
        count: json::total(snapshots),
        processes: snapshots.iter().map(Counts::of).collect(),
    };
    json::write_line(out, &document)
}

/// Writes one `key=value` line per process.
pub fn write(out: &mut dyn Write, snapshots: &[(Snapshot, Summary)]) -> anyhow::Result<()> {
    for (snapshot, summary) in snapshots {
        write!(
            out,
            "fd_counts pid={} count={} highest={} soft={} percent={}",
            snapshot.process.pid,
            number(snapshot.count),
            number(summary.highest),
            number(snapshot.limits.soft),
            summary
                .percent_of_soft
                .map_or_else(|| "unknown".to_owned(), |percent| percent.to_string()),
        )?;
        for row in summary.classes.iter().flatten() {
            let class = row.class.to_string();
            write!(out, " {}={}", sanitize_str(&class), row.count)?;
        }
        writeln!(out)?;
    }
    Ok(())
}
