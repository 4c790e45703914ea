//! Which object holds the descriptors, as text and as JSON.

use std::io::Write;

use fdguard_core::finding::Finding;
use fdguard_trace::{ProcessWhy, SiteWhy};
use serde::Serialize;
use serde_json::Value;

use super::style::{DIM, HEADING};
use super::trace::answer::DisplayOptions;
use crate::terminal::sanitize_str;

/// The version of the document.
const SCHEMA: &str = "fdguard.why/1";

/// The answers as one document.
#[derive(Debug, Serialize)]
pub struct WhyDocument<'a> {
    schema: &'static str,
    processes: &'a [ProcessWhy],
}

impl<'a> WhyDocument<'a> {
    /// Of these processes.
    #[must_use]
    pub fn new(processes: &'a [ProcessWhy]) -> Self {
        Self {
            schema: SCHEMA,
            processes,
        }
    }
}

/// Writes the answers.
pub fn write(
    out: &mut dyn Write,
    processes: &[ProcessWhy],
    width: Option<usize>,
) -> anyhow::Result<()> {
    let shown = DisplayOptions::here(super::diagnosis::columns(width));
    for one in processes {
        let comm = sanitize_str(&one.comm);
        let facts = match (one.objects, one.stop_ms) {
            (Some(objects), Some(stop)) => {
                format!(": {objects} objects, stopped {stop:.1} ms at most")
            }
            _ => String::new(),
        };
        writeln!(
            out,
            "{HEADING}why{HEADING:#} in {comm} (pid {}){facts}",
            one.pid
        )?;
        if let Some(refusal) = &one.refusal {
            writeln!(out, "  not known: {}", sanitize_str(refusal))?;
        }
        if let Some(stale) = &one.stale {
            let stale = sanitize_str(stale);
            writeln!(
                out,
                "  {DIM}of an earlier walk; the last one failed: {stale}{DIM:#}"
            )?;
        }
        for site in &one.sites {
            write_site(out, site, &shown)?;
        }
    }
    Ok(())
}

/// Adds the answers to the reasons of the findings about the same lines, which every format has.
pub fn add_to_findings(findings: &mut [Finding], processes: &[ProcessWhy]) {
    for one in processes {
        for site in one.sites.iter().filter(|site| site.culprit.is_some()) {
            let is_about = |finding: &&mut Finding| {
                let origin = finding.origin.as_ref();
                finding.pid == one.pid
                    && origin.is_some_and(|origin| origin.culprit == site.culprit)
            };
            for finding in findings.iter_mut().filter(is_about) {
                for chain in &site.why.chains {
                    let basis = chain.basis.text();
                    finding.why.push_str(&format!("; {} [{basis}]", chain.text));
                }
            }
        }
    }
}

/// Writes a document with the answers in it: all of them in `why`, and those of a line in each
/// object about that line.
pub fn write_json(
    out: &mut Vec<u8>,
    document: &impl Serialize,
    processes: Option<&[ProcessWhy]>,
) -> anyhow::Result<()> {
    let Some(processes) = processes else {
        return Ok(serde_json::to_writer(out, document)?);
    };
    let mut document = serde_json::to_value(document)?;
    add(&mut document, processes)?;
    Ok(serde_json::to_writer(out, &document)?)
}

/// Adds the answers to every object of a document that has the place of one.
pub fn add(document: &mut Value, processes: &[ProcessWhy]) -> anyhow::Result<()> {
    for one in processes {
        for site in one.sites.iter().filter(|site| site.culprit.is_some()) {
            let culprit = serde_json::to_value(&site.culprit)?;
            add_to(document, &culprit, &serde_json::to_value(&site.why)?);
        }
    }
    if let Some(document) = document.as_object_mut() {
        document.insert("why".to_owned(), serde_json::to_value(processes)?);
    }
    Ok(())
}

/// Adds an answer to every object whose origin is this place.
fn add_to(value: &mut Value, culprit: &Value, why: &Value) {
    match value {
        Value::Array(items) => {
            for item in items {
                add_to(item, culprit, why);
            }
        }
        Value::Object(fields) => {
            for field in fields.values_mut() {
                add_to(field, culprit, why);
            }
            let origin = fields
                .get("origin")
                .and_then(|origin| origin.get("culprit"));
            let own = fields.get("culprit");
            if origin == Some(culprit) || own == Some(culprit) {
                // A finding's `why` is its reason in words.
                let name = match fields.contains_key("why") {
                    true => "held_by",
                    false => "why",
                };
                fields.insert(name.to_owned(), why.clone());
            }
        }
        _ => {}
    }
}

fn write_site(out: &mut dyn Write, site: &SiteWhy, shown: &DisplayOptions) -> anyhow::Result<()> {
    let all = site.fds.len();
    let place = match &site.culprit {
        Some(culprit) => format!("opened at {}", line(culprit, shown)),
        None => "opened before fdguard came".to_owned(),
    };
    let what = |count: usize| match count {
        1 => singular(&site.what),
        _ => site.what.clone(),
    };
    for chain in &site.why.chains {
        let count = match chain.count == all {
            true => format!("{all} {}", what(all)),
            false => format!("{} of {all} {}", chain.count, what(all)),
        };
        writeln!(out, "{count} {HEADING}{place}{HEADING:#}")?;
        let text = sanitize_str(&chain.text);
        writeln!(out, "  {text} {DIM}[{}]{DIM:#}", chain.basis.text())?;
    }
    if site.why.more > 0 {
        writeln!(
            out,
            "  {DIM}and {} more in other ways{DIM:#}",
            site.why.more
        )?;
    }
    Ok(())
}

/// `run.py:61`.
fn line(culprit: &fdguard_core::origin::Culprit, shown: &DisplayOptions) -> String {
    match (&culprit.file, culprit.line) {
        (Some(file), Some(line)) => format!("{}:{line}", shown.path(file)),
        _ => shown.place(culprit),
    }
}

fn singular(what: &str) -> String {
    match what {
        "inotifies" => "inotify".to_owned(),
        what => what.strip_suffix('s').unwrap_or(what).to_owned(),
    }
}
