//! One process: its descriptors, limits, problems and databases.

use std::cmp::Ordering;

use fdguard_core::evidence::{Database, Evidence, ExaminedProcess, ProcessVisit};
use fdguard_core::forecast::Forecast;
use fdguard_core::lint::{LintHit, Severity};
use fdguard_core::units;
use fdguard_core::{Pid, Text, Tier};

use super::seconds_of;
use crate::report::document::{Block, Section};
use crate::report::table::Side::{Left, Right};
use crate::report::table::{class_name, counted, known, thousands};
use crate::terminal::{sanitize, sanitize_str};

/// How many targets are shown.
const TARGETS: usize = 20;
/// How many holders of a database are named.
const HOLDERS: usize = 8;

pub(super) fn of_one(
    evidence: &Evidence,
    visit: &ProcessVisit,
    examined: &ExaminedProcess,
    many: bool,
) -> Vec<Section> {
    let process = &visit.begin.process;
    let of = match many {
        true => format!(" of {} (pid {})", sanitize(&process.comm), process.pid),
        false => String::new(),
    };
    let opinion = evidence
        .diagnosis
        .processes
        .iter()
        .find(|one| one.pid == process.pid);
    let walls = opinion.map_or(&[][..], |opinion| &opinion.walls);
    [
        Section::of(format!("open descriptors{of}"), holdings(visit, examined)),
        Section::of(format!("targets{of}"), targets(examined)),
        Section::of(format!("limits{of}"), walls_table(walls)),
        Section::of(
            format!("SQLite databases{of}"),
            examined.databases.iter().map(database).collect(),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn holdings(visit: &ProcessVisit, examined: &ExaminedProcess) -> Vec<Block> {
    let latest = visit.latest();
    let share = examined.latest.percent_of_soft;
    let share = share.map_or_else(String::new, |percent| format!(" ({percent} %)"));
    let since = examined.uptime_seconds.map_or_else(String::new, |seconds| {
        format!("; running for {}", units::duration(seconds_of(seconds)))
    });
    let mut blocks = vec![Block::Sentence(format!(
        "{} of {} descriptors{share}, highest fd {}{since}",
        known(latest.count),
        known(latest.limits.soft),
        known(examined.latest.highest),
    ))];
    if latest.tier == Tier::Radar {
        blocks.push(Block::Sentence("fdguard could not list them".to_owned()));
    }
    blocks.extend(classes(examined));
    let patterns = examined.latest.patterns.iter();
    blocks.extend(patterns.map(|pattern| Block::Sentence(sanitize_str(pattern).into_owned())));
    blocks
}

/// Each class before the watch and after it.
fn classes(examined: &ExaminedProcess) -> Option<Block> {
    let after = examined.latest.classes.as_ref()?;
    let before = examined.begin.classes.as_deref().unwrap_or_default();
    let rows = after.iter().map(|row| {
        let first = before.iter().find(|other| other.class == row.class);
        let first = first.map_or(0, |first| first.count);
        vec![
            thousands(row.count),
            change(first, row.count),
            class_name(&row.class),
        ]
    });
    Some(Block::table(
        &[("now", Right), ("change", Right), ("class", Left)],
        rows,
    ))
}

fn change(before: u64, after: u64) -> String {
    match after.cmp(&before) {
        Ordering::Equal => "·".to_owned(),
        Ordering::Greater => format!("+{}", thousands(after - before)),
        Ordering::Less => format!("-{}", thousands(before - after)),
    }
}

fn targets(examined: &ExaminedProcess) -> Vec<Block> {
    let Some(targets) = examined
        .latest
        .targets
        .as_ref()
        .filter(|list| !list.is_empty())
    else {
        return Vec::new();
    };
    let rows = targets.iter().take(TARGETS).map(|row| {
        let shown = if row.same { &row.example } else { &row.target };
        vec![
            thousands(row.count),
            class_name(&row.class),
            sanitize(shown),
        ]
    });
    let left = targets.len().saturating_sub(TARGETS) as u64;
    let table = Block::table(&[("count", Right), ("class", Left), ("target", Left)], rows);
    let more = format!("and {} more in the snapshot", thousands(left));
    let more = (left > 0).then_some(Block::Remark(more));
    std::iter::once(table).chain(more).collect()
}

fn walls_table(walls: &[Forecast]) -> Vec<Block> {
    if walls.is_empty() {
        return Vec::new();
    }
    let rows = walls.iter().map(|wall| {
        let percent = wall.percent;
        vec![
            wall.name.clone(),
            known(wall.used),
            thousands(wall.at),
            percent.map_or_else(|| "?".to_owned(), |percent| format!("{percent} %")),
            forecast(wall),
        ]
    });
    vec![Block::table(
        &[
            ("limit", Left),
            ("used", Right),
            ("of", Right),
            ("share", Right),
            ("forecast", Left),
        ],
        rows,
    )]
}

/// When a limit is reached at this rate, with the range that the rate allows.
fn forecast(wall: &Forecast) -> String {
    let condition = wall
        .only_if
        .as_ref()
        .map_or_else(String::new, |only_if| format!(" {only_if}"));
    let when = match (
        wall.eta_seconds,
        within(wall.soonest_seconds, wall.latest_seconds),
    ) {
        (Some(eta), _) if eta < 1.0 => "now".to_owned(),
        (Some(eta), Some(range)) => format!("{} ({range})", units::duration(eta)),
        (Some(eta), None) => units::duration(eta),
        (None, _) if wall.used.is_none() => return "?".to_owned(),
        (None, _) => "not approaching".to_owned(),
    };
    format!("{when}{condition}")
}

/// The range of a forecast; absent if it adds nothing to the forecast.
pub(in crate::report) fn within(soonest: Option<f64>, latest: Option<f64>) -> Option<String> {
    let soonest = units::duration(soonest?);
    match latest.map(units::duration) {
        Some(latest) if latest == soonest => None,
        Some(latest) => Some(format!("{soonest} to {latest}")),
        None => Some(format!("{soonest} or later")),
    }
}

/// A lint, the command of its processes, and their pids.
type Suspects<'a> = (&'a LintHit, &'a Text, Vec<Pid>);

/// The lint results of all processes, the most severe first. Results of one rule for several
/// processes of one command, with equally many descriptors each, are merged.
pub(in crate::report::doctor) fn suspects(evidence: &Evidence) -> Vec<Suspects<'_>> {
    let mut found: Vec<Suspects<'_>> = Vec::new();
    for (visit, examined) in evidence.patients() {
        let process = &visit.begin.process;
        for hit in &examined.latest.lints {
            let like = found.iter_mut().find(|(other, comm, pids)| {
                let is_same = (other.rule, other.severity) == (hit.rule, hit.severity);
                // Two results of one rule about one process stay separate.
                let is_other = !pids.contains(&process.pid);
                is_same && is_other && other.fds.len() == hit.fds.len() && *comm == &process.comm
            });
            match like {
                Some((_, _, pids)) => pids.push(process.pid),
                None => found.push((hit, &process.comm, vec![process.pid])),
            }
        }
    }
    found.sort_by_key(|(hit, _, _)| std::cmp::Reverse(hit.severity));
    found
}

/// Problems, or only notes.
pub(super) fn lints(evidence: &Evidence, title: &str, is_wrong: bool) -> Option<Section> {
    let many = evidence.material.visits.len() > 1;
    let found = suspects(evidence).into_iter();
    let found = found.filter(|(hit, _, _)| (hit.severity > Severity::Info) == is_wrong);
    let blocks = found.map(|(hit, comm, pids)| {
        let subject = match (many, pids.as_slice()) {
            (false, _) => String::new(),
            (true, [pid]) => format!("{} (pid {pid}): ", sanitize(comm)),
            (true, [pid, ..]) => {
                format!(
                    "{} × {} (pid {pid} and others): ",
                    pids.len(),
                    sanitize(comm)
                )
            }
            (true, []) => String::new(),
        };
        Block::lint(hit, &subject)
    });
    Section::of(title, blocks.collect())
}

fn database(database: &Database) -> Block {
    let mut text = format!(
        "{}: {} on the database, {} on its -wal, {} on its -shm",
        sanitize(&database.path),
        thousands(database.connections),
        thousands(database.wal),
        thousands(database.shm),
    );
    if database.journal > 0 {
        text.push_str(&format!(
            ", {} on its -journal",
            thousands(database.journal)
        ));
    }
    let is_broken = database.deleted > 0;
    if is_broken {
        let verb = if database.deleted == 1 { "is" } else { "are" };
        text.push_str(&format!(
            "; {} of them {verb} deleted: data written there is lost",
            thousands(database.deleted)
        ));
    }
    let holders: Vec<String> = database
        .holders
        .iter()
        .take(HOLDERS)
        .map(|holder| {
            let comm = holder
                .comm
                .as_ref()
                .map_or_else(String::new, |comm| format!("{} ", sanitize(comm)));
            let writes = if holder.writes == Some(true) {
                ", writes"
            } else {
                ""
            };
            let held = counted(holder.descriptors, "descriptor");
            format!("{comm}(pid {}, {held}{writes})", holder.pid)
        })
        .collect();
    let unlisted = database.holders.len().saturating_sub(HOLDERS) as u64 + database.holders_more;
    let held = match (holders.is_empty(), unlisted) {
        (true, 0) => "no other visible process".to_owned(),
        (_, 0) => holders.join(", "),
        (_, more) => format!("{} and {} more", holders.join(", "), thousands(more)),
    };
    let severity = is_broken.then_some(Severity::Critical);
    Block::note(severity, text, None, vec![("also open in", held)])
}
