//! A snapshot for people.

use std::io::Write;

use fdguard_core::summary::TargetCount;
use fdguard_core::wall::Wall;
use fdguard_core::{FdEntry, Gap, Snapshot, Summary, Tier};

use super::style::{self, CRITICAL, DIM, HEADING, WARNING, paint};
use super::table::{Side, class_name, columns, counted, thousands};
use crate::terminal::{sanitize, sanitize_bytes, sanitize_str};

/// What to show.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Every descriptor.
    pub fds: bool,
    /// How many targets.
    pub targets: usize,
    /// Columns of the terminal; `None` cuts nothing.
    pub width: Option<usize>,
}

/// Writes snapshots one after the other, and the sum if there are several.
pub fn write(
    out: &mut dyn Write,
    snapshots: &[(Snapshot, Summary)],
    gaps: &[Gap],
    options: &Options,
) -> anyhow::Result<()> {
    if snapshots.len() > 1 {
        let total = super::json::total(snapshots).map_or_else(|| "?".to_owned(), thousands);
        writeln!(
            out,
            "{}",
            paint(
                HEADING,
                format!(
                    "{} processes have {total} descriptors open",
                    snapshots.len()
                )
            )
        )?;
    }
    for (index, (snapshot, summary)) in snapshots.iter().enumerate() {
        if index > 0 || snapshots.len() > 1 {
            writeln!(out)?;
        }
        write_one(out, snapshot, summary, options)?;
        if snapshots.len() == 1 || snapshot.tier > Tier::Radar {
            write_gaps(out, &snapshot.gaps)?;
        }
    }
    let refused = if snapshots.len() > 1 {
        refused(snapshots)
    } else {
        None
    };
    let gaps: Vec<Gap> = refused.into_iter().chain(gaps.iter().cloned()).collect();
    write_gaps(out, &gaps)
}

/// One gap for all processes that could not be listed: the reason is the same.
fn refused(snapshots: &[(Snapshot, Summary)]) -> Option<Gap> {
    let refused = snapshots
        .iter()
        .filter(|(snapshot, _)| snapshot.tier == Tier::Radar);
    let first = refused
        .clone()
        .find_map(|(snapshot, _)| snapshot.gaps.first())?;
    Some(match refused.count() {
        1 => first.clone(),
        count => Gap::new(
            format!("the descriptors of {} processes", thousands(count as u64)),
            first.why.clone(),
            first.remedy.clone(),
        ),
    })
}

fn write_one(
    out: &mut dyn Write,
    snapshot: &Snapshot,
    summary: &Summary,
    options: &Options,
) -> anyhow::Result<()> {
    write_head(out, snapshot, summary)?;
    write_family(out, snapshot)?;
    if let Some(classes) = &summary.classes {
        write_section(out, "classes")?;
        let rows: Vec<Vec<String>> = classes
            .iter()
            .map(|row| vec![thousands(row.count), class_name(&row.class)])
            .collect();
        write_rows(out, &rows, &[Side::Right, Side::Left], options.width)?;
    }
    if let Some(targets) = &summary.targets {
        write_targets(out, targets, options)?;
    }
    if !summary.patterns.is_empty() {
        write_section(out, "patterns")?;
        for pattern in &summary.patterns {
            writeln!(out, "  {}", sanitize_bytes(pattern.as_bytes()))?;
        }
    }
    write_lints(out, summary)?;
    if options.fds {
        write_fds(
            out,
            snapshot.fds.as_deref().unwrap_or_default(),
            options.width,
        )?;
    }
    Ok(())
}

fn write_head(out: &mut dyn Write, snapshot: &Snapshot, summary: &Summary) -> anyhow::Result<()> {
    let process = &snapshot.process;
    let mut about = format!("pid {}", process.pid);
    if let Some(inner) = process.ns_pid {
        about.push_str(&format!(", {inner} in its namespace"));
    }
    if let Some(container) = &process.container {
        about.push_str(&format!(
            ", container {}",
            sanitize_str(&container.chars().take(12).collect::<String>())
        ));
    }
    let tier = match snapshot.tier {
        Tier::Radar => "tier radar: counts only",
        Tier::Full => "tier full",
        Tier::Kernel => "tier kernel",
    };
    writeln!(
        out,
        "{} ({about})  {}",
        paint(HEADING, sanitize(&process.comm)),
        paint(DIM, tier)
    )?;
    let known = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), thousands);
    let share = match summary.percent_of_soft {
        Some(percent) => paint(style::share(percent), format!(" ({percent} %)")),
        None => String::new(),
    };
    writeln!(
        out,
        "  {} of {} descriptors{share}, highest fd {}{}",
        known(snapshot.count),
        known(snapshot.limits.soft),
        known(summary.highest),
        crossed(summary),
    )?;
    let left: Vec<String> = summary.walls.iter().filter_map(wall_left).collect();
    if !left.is_empty() {
        writeln!(out, "  left: {}", left.join(", "))?;
    }
    Ok(())
}

/// The range past 1024 if no such number is open now.
fn crossed(summary: &Summary) -> String {
    match (summary.crossed_1024, summary.highest) {
        (Some(true), Some(highest)) if highest < 1024 => {
            paint(WARNING, " (1024 or more was in use earlier)")
        }
        (Some(true), None) => paint(WARNING, " (1024 or more is or was in use)"),
        _ => String::new(),
    }
}

/// Always shows the process's own limits; shows the machine's limits when they are near.
fn wall_left(wall: &Wall) -> Option<String> {
    let own = matches!(
        wall.name.as_str(),
        "soft-limit" | "hard-limit" | "select-1024"
    );
    let near = wall.percent().is_some_and(|percent| percent >= 50.0);
    let left = wall.left?;
    let text = match wall.name.as_str() {
        "select-1024" if left == 0 => "fds above 1023 open: select() fails on them".to_owned(),
        "select-1024" => format!("{} to fd 1024 (if it uses select)", thousands(left)),
        name => format!("{} to the {}", thousands(left), name.replace('-', " ")),
    };
    let painted = match wall.percent() {
        Some(percent) => paint(style::share(percent), text),
        None => text,
    };
    (own || near).then_some(painted)
}

fn write_family(out: &mut dyn Write, snapshot: &Snapshot) -> anyhow::Result<()> {
    let process = &snapshot.process;
    let Some(children) = process.children.filter(|children| *children > 0) else {
        return Ok(());
    };
    let zombies = process.zombies.unwrap_or(0);
    let groups: Vec<String> = process
        .cohorts
        .iter()
        .take(5)
        .map(|cohort| match cohort.count {
            1 => sanitize(&cohort.command),
            count => format!("{} ×{count}", sanitize(&cohort.command)),
        })
        .collect();
    let zombies = match zombies {
        0 => String::new(),
        count => paint(WARNING, format!(", {}", counted(count, "zombie"))),
    };
    let children = counted(children, "child");
    writeln!(out, "  {children}{zombies}: {}", groups.join(", "))?;
    Ok(())
}

fn write_targets(
    out: &mut dyn Write,
    targets: &[TargetCount],
    options: &Options,
) -> anyhow::Result<()> {
    if targets.is_empty() || options.targets == 0 {
        return Ok(());
    }
    write_section(out, "targets")?;
    let rows: Vec<Vec<String>> = targets
        .iter()
        .take(options.targets)
        .map(|row| {
            // A group with a single target shows the target itself: there is nothing to collapse.
            let shown = if row.same { &row.example } else { &row.target };
            vec![
                format!("×{}", thousands(row.count)),
                class_name(&row.class),
                sanitize(shown),
            ]
        })
        .collect();
    write_rows(
        out,
        &rows,
        &[Side::Right, Side::Left, Side::Left],
        options.width,
    )?;
    let more = targets.len().saturating_sub(options.targets);
    if more > 0 {
        writeln!(
            out,
            "  {}",
            paint(DIM, format!("and {more} more (--targets N, --fds)"))
        )?;
    }
    Ok(())
}

fn write_lints(out: &mut dyn Write, summary: &Summary) -> anyhow::Result<()> {
    if summary.lints.is_empty() {
        return Ok(());
    }
    write_section(out, "lints")?;
    for hit in &summary.lints {
        let (color, word) = style::severity(hit.severity);
        let message = sanitize_bytes(hit.message.as_bytes());
        writeln!(
            out,
            "  {}: {message} {}",
            paint(color, word),
            paint(DIM, format!("[{}]", hit.rule))
        )?;
        writeln!(out, "    {}", paint(DIM, format!("fix: {}", hit.fix)))?;
    }
    Ok(())
}

fn write_fds(out: &mut dyn Write, fds: &[FdEntry], width: Option<usize>) -> anyhow::Result<()> {
    write_section(out, "descriptors")?;
    let mut rows = vec![
        ["FD", "CLASS", "MODE", "CLOEXEC", "TARGET"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(fds.iter().map(|entry| {
        vec![
            entry.fd.to_string(),
            class_name(&entry.class),
            entry.mode.map_or("?", fdguard_core::Mode::name).to_owned(),
            match entry.cloexec {
                Some(true) => "yes",
                Some(false) => "no",
                None => "?",
            }
            .to_owned(),
            describe(entry),
        ]
    }));
    write_rows(
        out,
        &rows,
        &[Side::Right, Side::Left, Side::Left, Side::Left, Side::Left],
        width,
    )
}

/// The target and a short note from its detail.
fn describe(entry: &FdEntry) -> String {
    let mut text = sanitize(&entry.target);
    let note = super::detail::note(entry);
    if !note.is_empty() {
        text.push_str("  ");
        text.push_str(&note);
    }
    text
}

pub(super) fn write_gaps(out: &mut dyn Write, gaps: &[Gap]) -> anyhow::Result<()> {
    if gaps.is_empty() {
        return Ok(());
    }
    write_section(out, "not seen")?;
    for gap in gaps {
        writeln!(
            out,
            "  {}: {}",
            paint(CRITICAL, sanitize_bytes(gap.what.as_bytes())),
            sanitize_str(&gap.why)
        )?;
        let remedy = format!("remedy: {}", sanitize_str(&gap.remedy));
        writeln!(out, "    {}", paint(DIM, remedy))?;
    }
    Ok(())
}

pub(super) fn write_section(out: &mut dyn Write, name: &str) -> anyhow::Result<()> {
    writeln!(out, "{}", paint(HEADING, name))?;
    Ok(())
}

pub(super) fn write_rows(
    out: &mut dyn Write,
    rows: &[Vec<String>],
    sides: &[Side],
    width: Option<usize>,
) -> anyhow::Result<()> {
    for line in columns(rows, sides, width.map(|width| width.saturating_sub(2))) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}
