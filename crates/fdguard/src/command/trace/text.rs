//! A trace for people: the verdict, then every site with its stack, the largest first.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use fdguard_core::Text;
use fdguard_core::origin::{Culprit, Frame};
use fdguard_trace::Site;

use super::joined::{Joined, Origins};
use crate::report::diagnosis;
use crate::report::style::{DIM, HEADING};
use crate::terminal::{sanitize, sanitize_str};

/// Sites that are shown of one process, and frames of one stack.
const MOST_SITES: usize = 20;
const MOST_FRAMES: usize = 12;

pub(super) fn write(
    out: &mut dyn Write,
    joined: &Joined,
    width: Option<usize>,
) -> anyhow::Result<()> {
    diagnosis::write(out, &joined.diagnosis, width)?;
    for process in &joined.processes {
        write_process(out, process)?;
    }
    Ok(())
}

fn write_process(out: &mut dyn Write, process: &Origins) -> anyhow::Result<()> {
    if process.sites.is_empty() {
        return Ok(());
    }
    let comm = sanitize_str(&process.comm);
    writeln!(
        out,
        "{HEADING}still open{HEADING:#} in {comm} (pid {}):",
        process.pid
    )?;
    for site in process.sites.iter().take(MOST_SITES) {
        write_site(out, site, process)?;
    }
    let more = process.sites.len().saturating_sub(MOST_SITES);
    if more > 0 {
        writeln!(out, "  {DIM}and {more} more sites{DIM:#}")?;
    }
    Ok(())
}

/// `+4.0/s, 312 live of 312, oldest 5.0 min: main.c:23 begin`, what they are, then the stack.
fn write_site(out: &mut dyn Write, site: &Site, process: &Origins) -> anyhow::Result<()> {
    let oldest = site.oldest_age(process.now).unwrap_or(0.0);
    let place = site
        .culprit
        .as_ref()
        .map_or("a stack that was lost".to_owned(), blamed);
    let how = site
        .open
        .first()
        .map_or("", |open| open.descriptor.how.name());
    writeln!(
        out,
        "  {}{HEADING}{} live{HEADING:#} of {}, oldest {}: {HEADING}{}{HEADING:#} ({how}{})",
        rate(site),
        site.open.len(),
        site.opened,
        diagnosis::duration(oldest),
        sanitize_str(&place),
        what(site, process),
    )?;
    for frame in site.stack.iter().take(MOST_FRAMES) {
        writeln!(out, "      {DIM}{}{DIM:#}", sanitize_str(&shown(frame)))?;
    }
    Ok(())
}

/// How fast they became more, where there are enough to tell: `+4.0/s, `.
fn rate(site: &Site) -> String {
    const ENOUGH: usize = 4;
    let times = || site.open.iter().map(|open| open.descriptor.ns);
    let (Some(first), Some(last)) = (times().min(), times().max()) else {
        return String::new();
    };
    let seconds = Duration::from_nanos(last.saturating_sub(first)).as_secs_f64();
    if site.open.len() < ENOUGH || seconds < 1.0 {
        return String::new();
    }
    format!("+{:.1}/s, ", (site.open.len() - 1) as f64 / seconds)
}

/// What most of them are: `, pipe`, and where they all point to the same, `, regular /srv/a.log`.
fn what(site: &Site, process: &Origins) -> String {
    let known = || {
        site.open
            .iter()
            .filter_map(|open| process.held.get(&open.fd))
    };
    let mut counts: HashMap<_, usize> = HashMap::new();
    for (class, _) in known() {
        *counts.entry(class).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .max_by_key(|(class, count)| (*count, std::cmp::Reverse(*class)));
    let Some((class, _)) = most else {
        return String::new();
    };
    let mut targets = known().filter(|held| held.0 == *class).map(|held| &held.1);
    match targets.next() {
        Some(first) if targets.all(|target| target == first) => {
            format!(", {class} {}", sanitize(first))
        }
        _ => format!(", {class}"),
    }
}

/// `main.c:23 begin`, or as much of it as is known.
fn shown(frame: &Frame) -> String {
    match &frame.module {
        Some(module) if frame.line.is_none() => {
            let function = frame.function.as_deref().unwrap_or("?");
            format!("{function} in {}", base_name(module))
        }
        _ => blamed(&Culprit::from(frame)),
    }
}

fn blamed(culprit: &Culprit) -> String {
    let function = culprit.function.as_deref().unwrap_or("?");
    match (&culprit.file, culprit.line) {
        (Some(file), Some(line)) => format!("{}:{line} {function}", base_name(file)),
        _ => function.to_owned(),
    }
}

fn base_name(path: &Text) -> String {
    let path = path.to_lossy();
    let name = Path::new(&*path).file_name();
    name.map_or(path.clone().into_owned(), |name| {
        name.to_string_lossy().into_owned()
    })
}
