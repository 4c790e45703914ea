//! A snapshot for people.

use std::io::Write;

use fdguard_core::summary::TargetCount;
use fdguard_core::units::plural;
use fdguard_core::wall::Wall;
use fdguard_core::workload::Workload;
use fdguard_core::{FdEntry, Gap, Snapshot, Summary, Tier};

use super::document::{Block, Section};
use super::style::{self, DIM, HEADING, WARNING, paint};
use super::table::Side::{Left, Right};
use super::table::{class_name, counted, known, thousands};
use super::text::TextWriter;
use crate::terminal::{sanitize, sanitize_str};

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
        let (count, total) = (snapshots.len(), super::json::total(snapshots));
        let noun = plural(total.unwrap_or(0), "descriptor");
        let text = format!("{count} processes have {} {noun} open", known(total));
        writeln!(out, "{}", paint(HEADING, text))?;
    }
    let width = options.width;
    for (index, (snapshot, summary)) in snapshots.iter().enumerate() {
        if index > 0 || snapshots.len() > 1 {
            writeln!(out)?;
        }
        write_head(out, snapshot, summary)?;
        write_family(out, snapshot)?;
        write_sharing(out, snapshot)?;
        let mut sections = sections(snapshot, summary, options);
        if snapshots.len() == 1 || snapshot.tier > Tier::Radar {
            sections.extend(Section::gaps(&snapshot.gaps));
        }
        TextWriter { out, width }.sections(&sections)?;
    }
    let refused = if snapshots.len() > 1 {
        refused(snapshots)
    } else {
        None
    };
    let gaps: Vec<Gap> = refused.into_iter().chain(gaps.iter().cloned()).collect();
    TextWriter { out, width }.sections(Section::gaps(&gaps).as_slice())
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

fn sections(snapshot: &Snapshot, summary: &Summary, options: &Options) -> Vec<Section> {
    let classes = summary.classes.as_ref().map(|classes| {
        let rows = classes.iter();
        let rows = rows.map(|row| vec![thousands(row.count), class_name(&row.class)]);
        Block::table(&[("", Right), ("", Left)], rows)
    });
    let targets = summary.targets.as_deref().unwrap_or_default();
    let patterns = summary.patterns.iter();
    let patterns = patterns.map(|text| Block::Sentence(sanitize_str(text).into_owned()));
    let lints = summary.lints.iter().map(|hit| Block::lint(hit, ""));
    let fds = snapshot.fds.as_deref().unwrap_or_default();
    let fds = options.fds.then(|| descriptors(fds));
    [
        Section::of("classes", classes.into_iter().collect()),
        Section::of("targets", self::targets(targets, options.targets)),
        Section::of("patterns", patterns.collect()),
        Section::of("lints", lints.collect()),
        Section::of("descriptors", fds.into_iter().collect()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn write_head(out: &mut dyn Write, snapshot: &Snapshot, summary: &Summary) -> anyhow::Result<()> {
    let process = &snapshot.process;
    let mut about = format!("pid {}", process.pid);
    if let Some(inner) = process.ns_pid {
        about.push_str(&format!(", {inner} in its namespace"));
    }
    if let Some(label) = process.workload.as_ref().and_then(Workload::label) {
        about.push_str(&format!(", {}", sanitize_str(&label)));
    } else if let Some(container) = &process.container {
        // A snapshot of an older version has only the id.
        let short: String = container.chars().take(12).collect();
        about.push_str(&format!(", container {}", sanitize_str(&short)));
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

/// How many numbers are one open file with others: what one of them reads or seeks, all see.
fn write_sharing(out: &mut dyn Write, snapshot: &Snapshot) -> anyhow::Result<()> {
    let pid = snapshot.process.pid;
    let fds = snapshot.fds.as_deref().unwrap_or_default();
    let shared = fds.iter().filter_map(|entry| entry.open_file.as_ref());
    let outside = shared.clone().filter(|file| file.is_held_outside(pid));
    let (shared, outside) = (shared.count() as u64, outside.count() as u64);
    if shared == 0 {
        return Ok(());
    }
    let outside = match outside {
        0 => String::new(),
        outside => format!(", {} of them with other processes", thousands(outside)),
    };
    let shared = counted(shared, "descriptor");
    writeln!(out, "  {shared} shared as the same open file{outside}")?;
    Ok(())
}

fn targets(targets: &[TargetCount], most: usize) -> Vec<Block> {
    if targets.is_empty() || most == 0 {
        return Vec::new();
    }
    let rows = targets.iter().take(most).map(|row| {
        // A group with a single target shows the target itself: there is nothing to collapse.
        let shown = if row.same { &row.example } else { &row.target };
        vec![
            format!("×{}", thousands(row.count)),
            class_name(&row.class),
            sanitize(shown),
        ]
    });
    let columns = &[("", Right), ("", Left), ("", Left)];
    let more = targets.len().saturating_sub(most);
    let remark = format!("and {more} more (--targets N, --fds)");
    let remark = (more > 0).then_some(Block::Remark(remark));
    let table = Block::table(columns, rows);
    std::iter::once(table).chain(remark).collect()
}

fn descriptors(fds: &[FdEntry]) -> Block {
    let rows = fds.iter().map(|entry| {
        let cloexec = match entry.cloexec {
            Some(true) => "yes",
            Some(false) => "no",
            None => "?",
        };
        vec![
            entry.fd.to_string(),
            class_name(&entry.class),
            entry.mode.map_or("?", fdguard_core::Mode::name).to_owned(),
            cloexec.to_owned(),
            describe(entry),
        ]
    });
    Block::table(
        &[
            ("FD", Right),
            ("CLASS", Left),
            ("MODE", Left),
            ("CLOEXEC", Left),
            ("TARGET", Left),
        ],
        rows,
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

#[cfg(test)]
mod tests {
    use fdguard_core::entry::SharedOpenFile;
    use fdguard_core::{FdHolder, Summary};

    use super::{Options, write};
    use crate::tui::top::fixture;

    #[test]
    fn numbers_of_one_open_file_name_each_other_also_across_processes() {
        let mut snapshot = fixture::holdings().snapshot;
        let own = snapshot.process.pid;
        let shared = |pid: u32, fd: u32| {
            let writes = None;
            Some(Box::new(SharedOpenFile {
                shared_with: vec![FdHolder { pid, fd, writes }],
                shared_more: 2,
            }))
        };
        let fds = snapshot.fds.as_mut().unwrap();
        fds[0].open_file = shared(own, 1);
        fds[1].open_file = shared(own, 0);
        fds[2].open_file = shared(77, 9);
        let summary = Summary::summarize(&snapshot);
        let options = Options {
            fds: true,
            targets: 0,
            width: None,
        };
        let mut text = Vec::new();
        write(&mut text, &[(snapshot, summary)], &[], &options).unwrap();
        let text = String::from_utf8(text).unwrap();
        let head = "3 descriptors shared as the same open file, 1 of them with other processes";
        assert!(text.contains(head), "{text}");
        let named: Vec<_> = text
            .lines()
            .filter(|line| line.contains("same open file as"))
            .collect();
        assert_eq!(named.len(), 3, "{text}");
        assert!(
            named[2].contains("77") && named[2].contains("2 more"),
            "{named:?}"
        );
    }
}
