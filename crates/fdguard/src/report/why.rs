//! Which object holds the descriptors, as text and as JSON.

use std::io::Write;
use std::time::Duration;

use fdguard_core::Gap;
use fdguard_core::evidence::Holders;
use fdguard_core::finding::Finding;
use fdguard_core::lifetimes::report::SiteReport;
use fdguard_core::units::{counted, milliseconds, singular, whole_milliseconds};
use fdguard_trace::{Chain, ProcessWhy, SiteWhy};
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
        let facts = facts(one);
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
            writeln!(out, "  {DIM}of an earlier walk: {stale}{DIM:#}")?;
        }
        for site in &one.sites {
            write_site(out, site, &shown)?;
        }
        if one.more_sites > 0 {
            let sites = counted(one.more_sites as u64, "further site");
            writeln!(out, "{DIM}and {sites}{DIM:#}")?;
        }
    }
    Ok(())
}

/// What was walked, and what the process lost by it.
fn facts(one: &ProcessWhy) -> String {
    let time = |ms: f64| Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
    let objects = one.objects.map(|objects| counted(objects as u64, "object"));
    let stop = one
        .stop_ms
        .map(|ms| format!("stopped {} at most", milliseconds(time(ms))));
    let waited = one
        .waited_ms
        .map(|ms| format!("waited {} in all", whole_milliseconds(time(ms))));
    let facts: Vec<String> = [objects, stop, waited].into_iter().flatten().collect();
    match facts.is_empty() {
        true => String::new(),
        false => format!(": {}", facts.join(", ")),
    }
}

/// The answers as a part of a doctor's evidence.
pub fn holders(processes: &[ProcessWhy]) -> anyhow::Result<Holders> {
    let shown = DisplayOptions::here(super::diagnosis::columns(None));
    let mut sentences = Vec::new();
    for one in processes {
        let process = format!("{} (pid {})", sanitize_str(&one.comm), one.pid);
        let missing = one.refusal.iter().chain(&one.stale);
        sentences.extend(missing.map(|reason| format!("{process}: {}", sanitize_str(reason))));
        for site in &one.sites {
            for chain in &site.why.chains {
                let (count, text) = (count(site, chain), sanitize_str(&chain.text));
                let (place, basis) = (place(site, &shown), chain.basis.text());
                sentences.push(format!("{count} {place}: {text} [{basis}]"));
            }
        }
    }
    Ok(Holders {
        processes: serde_json::to_value(processes)?,
        sentences,
    })
}

/// Adds the answers to the sites of the same lines in the same processes.
pub fn add_to_sites(sites: &mut [SiteReport], processes: &[ProcessWhy]) -> anyhow::Result<()> {
    for site in sites.iter_mut().filter(|site| site.culprit.is_some()) {
        let of_process = processes.iter().filter(|one| one.pid == site.pid);
        let mut answers = of_process.flat_map(|one| &one.sites);
        let answer = answers.find(|one| one.culprit == site.culprit);
        site.why = answer
            .map(|one| serde_json::to_value(&one.why))
            .transpose()?;
    }
    Ok(())
}

/// What could not be asked, or only before the end.
pub fn gaps(processes: &[ProcessWhy]) -> Vec<Gap> {
    let missing = processes.iter().filter_map(|one| {
        let refusal = one.refusal.as_deref().map(|refusal| {
            let (reason, way) = refusal.split_once(": ").unwrap_or((refusal, ""));
            (reason.to_owned(), way)
        });
        let stale = || {
            let stale = one.stale.as_deref()?;
            Some((
                format!("the answer is that of an earlier walk: {stale}"),
                "",
            ))
        };
        let (reason, way) = refusal.or_else(stale)?;
        let way = match way {
            "" => "ask while it runs, with fdguard why PID",
            way => way,
        };
        let what = format!(
            "which objects hold the descriptors of {} (pid {})",
            one.comm, one.pid
        );
        Some(Gap::new(what, reason, way))
    });
    missing.collect()
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

/// Adds the answers to every site and finding of a document that is about the same line of the same
/// process.
pub fn add(document: &mut Value, processes: &[ProcessWhy]) -> anyhow::Result<()> {
    let mut answers = Vec::new();
    for one in processes {
        for site in one.sites.iter().filter(|site| site.culprit.is_some()) {
            answers.push(SiteAnswer {
                pid: one.pid.into(),
                culprit: serde_json::to_value(&site.culprit)?,
                why: serde_json::to_value(&site.why)?,
            });
        }
    }
    add_to(document, &answers);
    if let Some(document) = document.as_object_mut() {
        document.insert("why".to_owned(), serde_json::to_value(processes)?);
    }
    Ok(())
}

/// The answer for a line of a process, as JSON.
struct SiteAnswer {
    pid: Value,
    culprit: Value,
    why: Value,
}

/// Adds the answer to every object with a `why`. A site's is filled in; a finding's is its reason
/// in words, so that the answer is its `held_by`.
fn add_to(value: &mut Value, answers: &[SiteAnswer]) {
    match value {
        Value::Array(items) => {
            for item in items {
                add_to(item, answers);
            }
        }
        Value::Object(fields) => {
            for field in fields.values_mut() {
                add_to(field, answers);
            }
            let name = match fields.get("why") {
                Some(Value::Null) => "why",
                Some(_) => "held_by",
                None => return,
            };
            let origin = fields.get("origin");
            let places = [
                fields.get("culprit"),
                origin.and_then(|origin| origin.get("culprit")),
            ];
            let answer = answers.iter().find(|answer| {
                let is_place = places.contains(&Some(&answer.culprit));
                is_place && fields.get("pid") == Some(&answer.pid)
            });
            if let Some(answer) = answer {
                fields.insert(name.to_owned(), answer.why.clone());
            }
        }
        _ => {}
    }
}

fn write_site(out: &mut dyn Write, site: &SiteWhy, shown: &DisplayOptions) -> anyhow::Result<()> {
    let place = place(site, shown);
    for chain in &site.why.chains {
        let count = count(site, chain);
        writeln!(out, "{count} {HEADING}{place}{HEADING:#}")?;
        let text = sanitize_str(&chain.text);
        writeln!(out, "  {text} {DIM}[{}]{DIM:#}", chain.basis.text())?;
    }
    if site.why.more > 0 {
        writeln!(out, "  {DIM}and {} more{DIM:#}", site.why.more)?;
    }
    Ok(())
}

/// `12 of 40 files`.
fn count(site: &SiteWhy, chain: &Chain) -> String {
    let all = site.fds.len();
    let what = match all {
        1 => singular(&site.what),
        _ => site.what.clone(),
    };
    match chain.count == all {
        true => format!("{all} {what}"),
        false => format!("{} of {all} {what}", chain.count),
    }
}

/// `opened at run.py:61`.
fn place(site: &SiteWhy, shown: &DisplayOptions) -> String {
    match &site.culprit {
        Some(culprit) => format!("opened at {}", line(culprit, shown)),
        None => "opened before fdguard came".to_owned(),
    }
}

/// `run.py:61`.
fn line(culprit: &fdguard_core::origin::Culprit, shown: &DisplayOptions) -> String {
    match (&culprit.file, culprit.line) {
        (Some(file), Some(line)) => format!("{}:{line}", shown.path(file)),
        _ => shown.place(culprit),
    }
}
