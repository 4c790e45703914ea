//! A trace for people: the verdict, then every site with its stack, the largest first.

use std::io::Write;

use fdguard_core::origin::{Culprit, Frame};
use fdguard_trace::Site;

use super::figures::{self, base_name, blamed};
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
    write_sites(out, process)
}

pub(super) fn write_sites(out: &mut dyn Write, process: &Origins) -> anyhow::Result<()> {
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
    let rate = figures::rate(site).map_or(String::new(), |rate| format!("+{rate:.1}/s, "));
    writeln!(
        out,
        "  {rate}{HEADING}{} live{HEADING:#} of {}, oldest {}: {HEADING}{}{HEADING:#} ({}{})",
        site.open.len(),
        site.opened,
        diagnosis::duration(oldest),
        sanitize_str(&figures::place(site)),
        figures::how(site),
        what(site, process),
    )?;
    if let Some(telling) = &site.telling {
        let caller = blamed(telling);
        let caller = sanitize_str(&caller);
        writeln!(
            out,
            "    called from {HEADING}{caller}{HEADING:#}: only there it leaks"
        )?;
    }
    for frame in site.stack.iter().take(MOST_FRAMES) {
        writeln!(out, "      {DIM}{}{DIM:#}", sanitize_str(&shown(frame)))?;
    }
    Ok(())
}

/// `, pipe`, and where they all point to the same, `, regular /srv/a.log`.
fn what(site: &Site, process: &Origins) -> String {
    match figures::what(site, process) {
        Some((class, Some(target))) => format!(", {class} {}", sanitize(target)),
        Some((class, None)) => format!(", {class}"),
        None => String::new(),
    }
}

/// `main.c:23 begin`, or as much of it as is known.
pub(super) fn shown(frame: &Frame) -> String {
    match &frame.module {
        Some(module) if frame.line.is_none() => {
            let function = frame.function.as_deref().unwrap_or("?");
            format!("{function} in {}", base_name(module))
        }
        _ => blamed(&Culprit::from(frame)),
    }
}
