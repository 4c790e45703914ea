//! The text report of a trace: the answer, the hazards, each process, then every site that holds
//! something, the program's own first.

use std::collections::BTreeMap;
use std::io::Write;

use fdguard_core::blame::own_frames;
use fdguard_core::dependency_path::through;
use fdguard_core::diagnosis::{Diagnosis, ProcessDiagnosis, WatchEnd};
use fdguard_core::finding::Finding;
use fdguard_core::opened_before::OpenedBefore;
use fdguard_core::origin::Frame;
use fdguard_core::units::duration;
use fdguard_diagnose::trace::{ProcessSites, TraceReport};
use fdguard_trace::Site;

use crate::report::diagnosis;
use crate::report::style::{DIM, HEADING};
use crate::report::table::{class_name, counted};
use crate::report::trace::answer::{self, DisplayOptions};
use crate::report::trace::{hazard, name};
use crate::terminal::{sanitize, sanitize_str};

/// How many sites of one process and frames of one stack are shown.
const MOST_SITES: usize = 20;
const MOST_FRAMES: usize = hazard::MOST_FRAMES;
/// How many hazards are shown; all of them are in the JSON.
const MOST_HAZARDS: usize = 20;
/// How many kinds of descriptors from before the attach are shown.
const MOST_GROUPS: usize = 10;

pub(super) fn write(
    out: &mut dyn Write,
    report: &TraceReport,
    width: Option<usize>,
) -> anyhow::Result<()> {
    let found = &report.diagnosis;
    let columns = diagnosis::columns(width);
    let shown = DisplayOptions::here(columns);
    for one in answer::answers(found) {
        one.write(out, &shown)?;
    }
    for one in found.hazards.iter().take(MOST_HAZARDS) {
        let comm = hazard::comm(found, one.pid);
        hazard::write(out, one, comm.as_deref(), columns)?;
    }
    let more = found.hazards.len().saturating_sub(MOST_HAZARDS);
    if more > 0 {
        writeln!(out, "{DIM}and {more} more hazards{DIM:#}")?;
    }
    write_processes(out, found, columns)?;
    if found.ended == WatchEnd::Interrupted {
        writeln!(out, "{DIM}Stopped: this is the verdict so far.{DIM:#}")?;
    }
    diagnosis::write_gaps(out, &found.gaps, columns)?;
    for process in &report.processes {
        write_process(out, found, process)?;
    }
    write_before(
        out,
        found.opened_before_attach.as_deref().unwrap_or_default(),
    )
}

/// What was open before the attach has no line; the lines that opened the same since are named.
fn write_before(out: &mut dyn Write, groups: &[OpenedBefore]) -> anyhow::Result<()> {
    for of_process in groups.chunk_by(|a, b| a.pid == b.pid) {
        let Some(first) = of_process.first() else {
            continue;
        };
        let count: u64 = of_process.iter().map(|one| one.count).sum();
        writeln!(
            out,
            "{HEADING}opened before the attach{HEADING:#} in {} (pid {}): {}, at least {} old",
            sanitize(&first.comm),
            first.pid,
            counted(count, "descriptor"),
            duration(first.age_at_least_seconds),
        )?;
        for one in of_process.iter().take(MOST_GROUPS) {
            let (class, target) = (class_name(&one.class), sanitize(&one.target));
            writeln!(out, "  {} × {class} {target}{}", one.count, since(one))?;
        }
        let more = of_process.len().saturating_sub(MOST_GROUPS);
        if more > 0 {
            writeln!(out, "  {DIM}and {more} more kinds{DIM:#}")?;
        }
    }
    Ok(())
}

/// `; store.py:17 save has opened 12 more since, 8 are open`.
fn since(one: &OpenedBefore) -> String {
    let lines = one.opened_since.iter().map(|site| {
        let line = name::culprit(&site.culprit);
        format!(
            "; {HEADING}{line}{HEADING:#} has opened {} more since, {} open",
            site.opened, site.live
        )
    });
    lines.collect()
}

/// Prints the launched process and those with findings one by one; the others with the same name
/// share a line.
fn write_processes(out: &mut dyn Write, found: &Diagnosis, width: usize) -> anyhow::Result<()> {
    let mut others: BTreeMap<String, BTreeMap<&'static str, usize>> = BTreeMap::new();
    for opinion in found.processes.iter().chain(&found.predecessors) {
        let mut rest = opinion.clone();
        let (answered, findings): (Vec<Finding>, Vec<Finding>) =
            rest.findings.into_iter().partition(answer::is_answered);
        rest.findings = findings;
        // An answer already has the estimate.
        let known = answered.iter().flat_map(|one| &one.walls);
        rest.walls
            .retain(|wall| known.clone().all(|eta| eta.name != wall.name));
        if opinion.pid == found.process.pid || is_worth_a_line(&rest) {
            diagnosis::write_opinion(out, &rest, width)?;
        } else {
            let verdicts = others.entry(sanitize(&opinion.comm)).or_default();
            *verdicts
                .entry(diagnosis::word(opinion.verdict))
                .or_default() += 1;
        }
    }
    let root = found
        .processes
        .iter()
        .find(|one| one.pid == found.process.pid);
    if let Some(peak) = found
        .peak
        .filter(|peak| root.and_then(|one| one.last) != Some(*peak))
    {
        writeln!(out, "  peak: {peak} descriptors")?;
    }
    for (comm, verdicts) in others {
        let count: usize = verdicts.values().sum();
        let each = verdicts.iter().map(|(verdict, of)| match *of == count {
            true => (*verdict).to_owned(),
            false => format!("{of} {verdict}"),
        });
        let each = each.collect::<Vec<_>>().join(", ");
        writeln!(out, "{DIM}{count} × {comm}: {each}{DIM:#}")?;
    }
    Ok(())
}

fn is_worth_a_line(opinion: &ProcessDiagnosis) -> bool {
    let counts = |one: &Finding| {
        one.cleared.is_some() || one.severity >= fdguard_core::lint::Severity::Warning
    };
    opinion.findings.iter().any(counts)
}

/// Prints what a process held at the end and no answer covers. For ended children it is mostly
/// irrelevant.
fn write_process(
    out: &mut dyn Write,
    found: &Diagnosis,
    process: &ProcessSites,
) -> anyhow::Result<()> {
    let is_root = process.pid == found.process.pid;
    let is_shown = |site: &&Site| is_root || is_leaking(found, process, site);
    let sites: Vec<&Site> = process.sites.iter().filter(is_shown).collect();
    let (own, others): (Vec<&Site>, Vec<&Site>) =
        sites.into_iter().partition(|site| is_of_program(site));
    if own.is_empty() && others.is_empty() {
        return Ok(());
    }
    let comm = sanitize_str(&process.comm);
    writeln!(
        out,
        "{HEADING}still open{HEADING:#} in {comm} (pid {}):",
        process.pid
    )?;
    // If the program has no line of its own, show those of libraries.
    let (named, folded) = match own.is_empty() {
        true => others.into_iter().partition(|site| !is_runtimes(site)),
        false => (own, others),
    };
    let is_answered = |site: &Site| is_leaking(found, process, site);
    write_some(out, process, &named, &is_answered)?;
    if !folded.is_empty() {
        let count: usize = folded.iter().map(|site| site.open.len()).sum();
        let and = if named.is_empty() { "" } else { "and " };
        writeln!(
            out,
            "  {DIM}{and}{count} opened by the runtime and its libraries{DIM:#}"
        )?;
    }
    Ok(())
}

/// Whether an answer covers it.
fn is_leaking(found: &Diagnosis, process: &ProcessSites, site: &Site) -> bool {
    found.findings.iter().any(|one| {
        let origin = one.origin.as_ref();
        let culprit = origin.and_then(|origin| origin.culprit.as_ref());
        one.pid == process.pid && answer::is_answered(one) && culprit == site.culprit.as_ref()
    })
}

fn is_of_program(site: &Site) -> bool {
    site.stack.is_empty() || own_frames(&site.stack).next().is_some()
}

/// Whether a language's runtime opened it for itself; see `fdguard-trace`'s outlines.
fn is_runtimes(site: &Site) -> bool {
    let is_nameless = |frame: &Frame| frame.file.is_none() && frame.function.is_none();
    !site.stack.is_empty()
        && site
            .stack
            .iter()
            .all(|frame| frame.language.has_runtime() && is_nameless(frame))
}

/// The sites of a process.
pub(super) fn write_sites(out: &mut dyn Write, process: &ProcessSites) -> anyhow::Result<()> {
    let sites: Vec<&Site> = process.sites.iter().collect();
    write_some(out, process, &sites, &|_| false)
}

/// Prints sites; a stack that is already in an answer is not repeated.
fn write_some(
    out: &mut dyn Write,
    process: &ProcessSites,
    sites: &[&Site],
    is_answered: &dyn Fn(&Site) -> bool,
) -> anyhow::Result<()> {
    for site in sites.iter().take(MOST_SITES) {
        write_site(out, process, site, is_answered(site))?;
    }
    let more = sites.len().saturating_sub(MOST_SITES);
    if more > 0 {
        writeln!(out, "  {DIM}and {more} more sites{DIM:#}")?;
    }
    Ok(())
}

/// `+4.0/s, 312 live of 312, oldest 5.0 min: main.c:23 begin`, the classes, then the stack.
fn write_site(
    out: &mut dyn Write,
    process: &ProcessSites,
    site: &Site,
    is_short: bool,
) -> anyhow::Result<()> {
    let rate = site.per_second().map(|rate| format!("+{rate:.1}/s, "));
    let oldest = site.oldest_age(process.now).map(duration);
    let oldest = oldest.map(|age| format!(", oldest {age}"));
    let call = site
        .oldest()
        .map_or("", |oldest| oldest.descriptor.call.name());
    let through = through(&site.stack).join(" → ");
    let through = match through.is_empty() {
        true => String::new(),
        false => format!(" … {}", sanitize_str(&through)),
    };
    writeln!(
        out,
        "  {}{HEADING}{} live{HEADING:#} of {}{}: {HEADING}{}{HEADING:#}{through} ({}{})",
        rate.unwrap_or_default(),
        site.open.len(),
        site.opened,
        oldest.unwrap_or_default(),
        name::site(site.culprit.as_ref(), &site.stack),
        call,
        what(process, site),
    )?;
    if is_short {
        return Ok(());
    }
    if let Some(caller) = &site.leaking_caller {
        let caller = name::culprit(caller);
        writeln!(
            out,
            "    called from {HEADING}{caller}{HEADING:#}: the only caller that leaks"
        )?;
    }
    for frame in site.stack.iter().take(MOST_FRAMES) {
        writeln!(out, "      {DIM}{}{DIM:#}", name::line(frame))?;
    }
    Ok(())
}

/// `, pipe`, and if all have the same target, `, regular /srv/a.log`.
fn what(process: &ProcessSites, site: &Site) -> String {
    match process.class_and_target(site) {
        Some((class, Some(target))) => format!(", {} {}", class_name(class), sanitize(target)),
        Some((class, None)) => format!(", {}", class_name(class)),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::diagnosis::ProcessDiagnosis;
    use fdguard_core::judge::Verdict;
    use fdguard_core::origin::Language;
    use fdguard_core::snapshot::Limits;

    use super::write;
    use crate::report::trace::testing::{MadeReport, frame, hazard};

    fn told(made: &MadeReport) -> String {
        let mut out = Vec::new();
        write(&mut out, &made.report(), Some(100)).unwrap();
        String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap()
    }

    #[test]
    fn r40_hazards_come_before_the_sites() {
        let stack = [frame("arm\x1b[2J", Some(("/srv/main.c", 3)), Language::C)];
        let mut made = MadeReport::default().site("srv", &stack, 312);
        made.diagnosis.hazards = vec![hazard(); 22];
        let text = told(&made);
        assert!(
            text.starts_with("critical double-close  fd 9 (pipe) in srv (pid 100), 3 times\n"),
            "{text}"
        );
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        let order = [at("and 2 more hazards\n"), at("still open in srv")];
        assert!(order.is_sorted(), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        let line = "  +4.0/s, 312 live of 624, oldest 5.0 min: main.c:3 arm\\u{1b}[2J (open, regular /srv/<script>alert(1)</script>.log)\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn children_with_nothing_to_say_take_one_line() {
        let mut made = MadeReport::default();
        let opinion = |pid: u32, comm: &str| ProcessDiagnosis {
            pid,
            comm: comm.into(),
            workload: None,
            verdict: Verdict::Stable,
            samples: 3,
            watched_seconds: 1.0,
            baseline: Some(4),
            last: Some(4),
            highest: Some(3),
            limits: Limits::default(),
            walls: Vec::new(),
            classes: None,
            findings: Vec::new(),
        };
        made.diagnosis.processes = vec![opinion(100, "srv")];
        let children = (0..60).map(|nth| opinion(200 + nth, "sleep"));
        made.diagnosis.processes.extend(children);
        let text = told(&made);
        assert!(
            text.contains("stable  srv (pid 100): 4 descriptors"),
            "{text}"
        );
        assert!(text.contains("60 × sleep: stable\n"), "{text}");
        assert_eq!(text.matches("sleep").count(), 1, "{text}");
        for child in made.diagnosis.processes.iter_mut().skip(1).take(23) {
            child.verdict = Verdict::Unknown;
        }
        let text = told(&made);
        assert!(
            text.contains("60 × sleep: 37 stable, 23 unknown\n"),
            "{text}"
        );
    }

    #[test]
    fn what_the_runtime_opened_for_itself_is_counted() {
        let mut node = frame("", None, Language::Node);
        (node.function, node.module) = (None, Some("/usr/bin/node".into()));
        let made = MadeReport::default().site("srv", std::slice::from_ref(&node), 3);
        let text = told(&made);
        assert!(
            text.ends_with(
                "still open in srv (pid 100):\n  3 opened by the runtime and its libraries\n"
            ),
            "{text}"
        );
        let line = frame("arm", Some(("/usr/lib/x/a.c", 3)), Language::C);
        let text = told(&made.site("srv", &[line], 2));
        assert!(text.contains("a.c:3 arm"), "{text}");
        assert!(
            text.ends_with("  and 3 opened by the runtime and its libraries\n"),
            "{text}"
        );
    }

    #[test]
    fn a_stack_that_was_lost_is_said_so() {
        let text = told(&MadeReport::default().site("srv", &[], 2));
        assert!(
            text.contains("2 live of 4, oldest 5.0 min: unknown stack (open"),
            "{text}"
        );
    }
}
