//! A trace for people: the verdict, then every site with its stack, the largest first.

use std::io::Write;
use std::path::Path;

use fdguard_trace::{Place, Site};

use super::joined::{Joined, Origins};
use super::origin::age;
use crate::report::diagnosis;
use crate::report::style::{DIM, HEADING};
use crate::terminal::sanitize_str;

/// Sites that are shown of one process, and frames of one stack.
const MOST_SITES: usize = 20;
const MOST_FRAMES: usize = 12;

pub(super) fn write(
    out: &mut dyn Write,
    joined: &Joined,
    width: Option<usize>,
) -> anyhow::Result<()> {
    match &joined.diagnosis {
        Some(found) => diagnosis::write(out, found, width)?,
        None => {
            for gap in &joined.gaps {
                let text = format!("not seen: {} ({}); {}", gap.what, gap.why, gap.remedy);
                writeln!(out, "{DIM}{}{DIM:#}", sanitize_str(&text))?;
            }
        }
    }
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
        write_site(out, site, process.now)?;
    }
    let more = process.sites.len().saturating_sub(MOST_SITES);
    if more > 0 {
        writeln!(out, "  {DIM}and {more} more sites{DIM:#}")?;
    }
    Ok(())
}

/// `312 live, oldest 5.0 min: main.c:23 begin`, then the stack.
fn write_site(out: &mut dyn Write, site: &Site, now: u64) -> anyhow::Result<()> {
    let oldest = site.oldest().map_or(0.0, |oldest| age(oldest, now));
    let place = site
        .culprit
        .as_ref()
        .map_or("a stack that was lost".to_owned(), place);
    let how = site
        .open
        .first()
        .map_or("", |open| open.descriptor.how.name());
    writeln!(
        out,
        "  {HEADING}{}{HEADING:#} live, {} opened, {} closed, oldest {}: {HEADING}{}{HEADING:#} {how}",
        site.open.len(),
        site.opened,
        site.closed,
        diagnosis::duration(oldest),
        sanitize_str(&place),
    )?;
    for frame in site.stack.iter().take(MOST_FRAMES) {
        writeln!(
            out,
            "      {DIM}{}{DIM:#}",
            sanitize_str(&self::place(frame))
        )?;
    }
    Ok(())
}

/// `main.c:23 begin`, or as much of it as is known.
fn place(place: &Place) -> String {
    let name = |path: &str| {
        let name = Path::new(path).file_name();
        name.map_or(path.to_owned(), |name| name.to_string_lossy().into_owned())
    };
    let function = place.function.as_deref().unwrap_or("?");
    match (&place.file, place.line, &place.module) {
        (Some(file), Some(line), _) => format!("{}:{line} {function}", name(file)),
        (_, _, Some(module)) => format!("{function} in {}", name(module)),
        _ => function.to_owned(),
    }
}
