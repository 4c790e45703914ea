//! The files of a bundle, made from the evidence.

use std::fmt::Write as _;

use fdguard_core::evidence::{Evidence, Machine, Relative, RuntimeInfo};
use fdguard_core::{Pid, Snapshot, Summary, Text};
use jiff::Timestamp;
use serde::Serialize;

use super::bundle::Piece;
use crate::report::{doctor, html, json};

/// Name and description of every file, in reading order.
const CONTENTS: &[(&str, &str)] = &[
    ("report.txt", "the report: read this first"),
    (
        "report.html",
        "the report with plots; no scripts, no network access",
    ),
    (
        "diagnosis.json",
        "the report as JSON: fdguard.diagnosis/1 with more members",
    ),
    (
        "snapshot-begin.json",
        "every descriptor before the watch: fdguard.snapshot/1 (fdguard snap --from)",
    ),
    (
        "snapshot-end.json",
        "every descriptor after the watch; compare with fdguard diff",
    ),
    (
        "tree.json",
        "parents and descendants with their descriptor counts",
    ),
    ("limits.txt", "limits and how much of each is used"),
    (
        "versions.json",
        "fdguard, kernel, system, executables, times",
    ),
    (
        "recording.jsonl",
        "every sample of the watch: fdguard.recording/1",
    ),
    ("log-symptoms.json", "log lines about descriptors"),
];

#[derive(Serialize)]
struct Tree<'a> {
    schema: &'static str,
    processes: &'a [Relative],
    more: u64,
}

#[derive(Serialize)]
struct Versions<'a> {
    schema: &'static str,
    #[serde(flatten)]
    machine: &'a Machine,
    processes: Vec<Version<'a>>,
}

#[derive(Serialize)]
struct Version<'a> {
    pid: Pid,
    comm: &'a Text,
    exe: Option<&'a Text>,
    runtime: Option<&'a RuntimeInfo>,
    start_time: Option<Timestamp>,
    uptime_seconds: Option<u64>,
}

#[derive(Serialize)]
struct Symptoms<'a> {
    schema: &'static str,
    logs: &'a [fdguard_core::evidence::LogFile],
}

/// Every file.
pub(super) fn pieces(evidence: &Evidence) -> anyhow::Result<Vec<Piece>> {
    let mut report = Vec::new();
    doctor::write(&mut report, evidence, &doctor::Options::default())?;
    let material = &evidence.material;
    let begin: Vec<&Snapshot> = material.visits.iter().map(|visit| &visit.begin).collect();
    let end: Vec<&Snapshot> = material
        .visits
        .iter()
        .filter_map(|visit| visit.end.as_ref())
        .collect();
    let bytes = vec![
        anstream::adapter::strip_bytes(&report).into_vec(),
        html::page(evidence).into_bytes(),
        doctor::bundled_document(evidence)?,
        snapshots(&begin)?,
        snapshots(&end)?,
        line(&Tree {
            schema: "fdguard.tree/1",
            processes: &material.relatives,
            more: material.relatives_more,
        })?,
        limits(evidence).into_bytes(),
        line(&versions(evidence))?,
        recording(evidence)?,
        line(&Symptoms {
            schema: "fdguard.log-symptoms/1",
            logs: &material.logs,
        })?,
    ];
    let names = CONTENTS.iter().map(|(name, _)| *name);
    let files = names.zip(bytes).map(|(name, bytes)| Piece { name, bytes });
    let readme = Piece {
        name: "README.txt",
        bytes: readme(evidence).into_bytes(),
    };
    Ok(std::iter::once(readme).chain(files).collect())
}

fn line(value: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    Ok(text)
}

fn snapshots(list: &[&Snapshot]) -> anyhow::Result<Vec<u8>> {
    let with_summary = |snapshot: &&Snapshot| ((*snapshot).clone(), Summary::summarize(snapshot));
    let list: Vec<(Snapshot, Summary)> = list.iter().map(with_summary).collect();
    let mut text = Vec::new();
    json::write(&mut text, &list, &[], list.len() != 1)?;
    Ok(text)
}

fn recording(evidence: &Evidence) -> anyhow::Result<Vec<u8>> {
    let mut text = line(&evidence.material.header)?;
    for entry in &evidence.material.entries {
        text.extend(line(entry)?);
    }
    Ok(text)
}

fn versions(evidence: &Evidence) -> Versions<'_> {
    let processes = evidence.patients().map(|(visit, examined)| {
        let process = &visit.begin.process;
        Version {
            pid: process.pid,
            comm: &process.comm,
            exe: process.exe.as_ref(),
            runtime: visit.runtime.as_ref(),
            start_time: process.start_time,
            uptime_seconds: examined.uptime_seconds,
        }
    });
    Versions {
        schema: "fdguard.versions/1",
        machine: &evidence.material.machine,
        processes: processes.collect(),
    }
}

/// `key=value`, one line each: for `grep`.
fn limits(evidence: &Evidence) -> String {
    let known =
        |value: Option<u64>| value.map_or_else(|| "unknown".to_owned(), |value| value.to_string());
    let mut text = String::new();
    for (visit, examined) in evidence.patients() {
        let latest = visit.latest();
        let _infallible = writeln!(
            text,
            "pid={} count={} soft={} hard={} highest={} table_size={}",
            latest.process.pid,
            known(latest.count),
            known(latest.limits.soft),
            known(latest.limits.hard),
            known(examined.latest.highest),
            known(latest.table_size),
        );
        for wall in &examined.latest.walls {
            let _infallible = writeln!(
                text,
                "pid={} wall={} at={} used={} left={}",
                latest.process.pid,
                wall.name,
                wall.at,
                known(wall.used),
                known(wall.left),
            );
        }
    }
    text
}

fn readme(evidence: &Evidence) -> String {
    let headline = doctor::headline(evidence);
    let mut text = format!(
        "Evidence collected by fdguard {} doctor\n\n{}: {}\n\n",
        evidence.material.machine.fdguard, headline.word, headline.text
    );
    for (name, meaning) in CONTENTS {
        let _infallible = writeln!(text, "{name:<20} {meaning}");
    }
    text.push_str(if evidence.redacted {
        "\nNames are redacted: users, hosts, files and arguments are replaced by tokens such as ~a. A name has\n\
         the same token in all files of this bundle. Commands, libraries, file types and common directories\n\
         are kept.\n"
    } else {
        "\nNames are NOT redacted: this bundle contains files, peers and arguments. Read it before you publish\n\
         it, or create a bundle without names with fdguard doctor --redact.\n"
    });
    text
}
