//! What the report says, apart from how it is shown: text and web page have the same.
//!
//! Every string here is safe to show: names that others chose went through [`crate::terminal::sanitize`].

use fdguard_core::evidence::{Database, Evidence, Examined, LogSymptom, Relation, Relative, Visit};
use fdguard_core::finding::Finding;
use fdguard_core::forecast::Forecast;
use fdguard_core::lint::{LintHit, Severity};
use fdguard_core::rule::wording;
use fdguard_core::{Gap, Tier};

use super::super::table::{Side, class_name, counted, thousands};
use super::verdict::{self, Headline};
use crate::terminal::{sanitize, sanitize_str};

/// How many targets are shown.
const TARGETS: usize = 20;
/// How many relatives are shown.
const RELATIVES: usize = 40;

/// The report.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// Of whom.
    pub title: String,
    /// The sentence that comes first.
    pub headline: Headline,
    /// How it was looked at.
    pub about: String,
    /// The rest.
    pub sections: Vec<Section>,
}

/// A part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// What stands under it.
    pub blocks: Vec<Block>,
}

/// A piece of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A plain sentence.
    Sentence(String),
    /// Something that was found.
    Note(Note),
    /// Rows.
    Table(Table),
}

/// Something that was found, what it is and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// How much it matters, where it does.
    pub severity: Option<Severity>,
    /// What it is.
    pub text: String,
    /// The rule that found it.
    pub rule: Option<String>,
    /// More, each with its label.
    pub more: Vec<(&'static str, String)>,
}

/// Rows under names.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The columns; names may be empty where the rows explain themselves.
    pub columns: Vec<(&'static str, Side)>,
    /// The cells.
    pub rows: Vec<Vec<String>>,
    /// What was left out.
    pub more: Option<String>,
}

impl Outline {
    /// Puts the evidence in order.
    #[must_use]
    pub fn of(evidence: &Evidence) -> Self {
        let diagnosis = &evidence.diagnosis;
        let many = evidence.material.visits.len() > 1;
        let mut sections = Vec::new();
        sections.extend(findings(&diagnosis.findings, many));
        for (visit, examined) in evidence.patients() {
            sections.extend(of_one(evidence, visit, examined, many));
        }
        sections.extend(family(
            &evidence.material.relatives,
            evidence.material.relatives_more,
        ));
        sections.extend(logs(evidence));
        sections.extend(gaps(&evidence.gaps));
        sections.push(versions(evidence));
        Self {
            title: title(evidence),
            headline: verdict::headline(evidence),
            about: about(evidence),
            sections,
        }
    }
}

fn title(evidence: &Evidence) -> String {
    let process = &evidence.diagnosis.process;
    let others = evidence.material.visits.len().saturating_sub(1) as u64;
    let others = match others {
        0 => String::new(),
        _ => format!(
            " and {}",
            counted(others, "other process", "other processes")
        ),
    };
    format!("{} (pid {}){others}", sanitize(&process.comm), process.pid)
}

fn about(evidence: &Evidence) -> String {
    let diagnosis = &evidence.diagnosis;
    let watched = diagnosis
        .processes
        .first()
        .map_or(0.0, |one| one.watched_seconds);
    let redacted = if evidence.redacted {
        ", names redacted"
    } else {
        ""
    };
    format!(
        "watched for {} with {} from {}{redacted}",
        wording::duration(watched),
        counted(diagnosis.samples, "look", "looks"),
        at_second(diagnosis.started_at),
    )
}

/// A moment to the second: nobody reads the rest.
pub(super) fn at_second(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

fn section(title: impl Into<String>, blocks: Vec<Block>) -> Option<Section> {
    (!blocks.is_empty()).then(|| Section {
        title: title.into(),
        blocks,
    })
}

fn findings(findings: &[Finding], many: bool) -> Option<Section> {
    let notes = findings.iter().map(|finding| {
        let subject = match many {
            true => format!("{} (pid {}): ", sanitize(&finding.comm), finding.pid),
            false => String::new(),
        };
        let mut more = steps(&finding.next_step);
        if let Some(cleared) = &finding.cleared {
            let reason = sanitize_str(&cleared.reason);
            more.push(("cleared", format!("{reason} ({})", cleared.date)));
        }
        Block::Note(Note {
            severity: Some(finding.severity),
            text: format!("{subject}{}", sanitize_str(&finding.why)),
            rule: Some(finding.rule.clone()),
            more,
        })
    });
    section("found", notes.collect())
}

/// The advice of the playbook has three parts in one sentence: who makes it, how to make sure, what to change.
fn steps(next_step: &str) -> Vec<(&'static str, String)> {
    let (source, rest) = next_step
        .split_once(" Confirm: ")
        .unwrap_or((next_step, ""));
    let (confirm, fix) = rest.split_once(" Fix: ").unwrap_or((rest, ""));
    let label = if rest.is_empty() { "next" } else { "likely" };
    let mut steps = vec![(label, source), ("confirm", confirm), ("fix", fix)];
    steps.retain(|(_, text)| !text.is_empty());
    steps
        .into_iter()
        .map(|(label, text)| (label, sanitize_str(text).into_owned()))
        .collect()
}

fn of_one(evidence: &Evidence, visit: &Visit, examined: &Examined, many: bool) -> Vec<Section> {
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
        section(format!("holdings{of}"), holdings(visit, examined)),
        section(format!("targets{of}"), targets(examined)),
        section(format!("walls{of}"), walls_table(walls)),
        section(
            format!("looks wrong{of}"),
            examined.latest.lints.iter().map(lint).collect(),
        ),
        section(
            format!("SQLite databases{of}"),
            examined.databases.iter().map(database).collect(),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn holdings(visit: &Visit, examined: &Examined) -> Vec<Block> {
    let latest = visit.latest();
    let known = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), thousands);
    let share = examined.latest.percent_of_soft;
    let share = share.map_or_else(String::new, |percent| format!(" ({percent} %)"));
    let since = examined.uptime_seconds.map_or_else(String::new, |seconds| {
        format!(
            "; it has been running for {}",
            wording::duration(seconds_of(seconds))
        )
    });
    let mut blocks = vec![Block::Sentence(format!(
        "{} of {} descriptors{share}, highest number {}{since}",
        known(latest.count),
        known(latest.limits.soft),
        known(examined.latest.highest),
    ))];
    if latest.tier == Tier::Radar {
        blocks.push(Block::Sentence(
            "what they are could not be seen".to_owned(),
        ));
    }
    blocks.extend(classes(examined).map(Block::Table));
    let patterns = examined.latest.patterns.iter();
    blocks.extend(patterns.map(|pattern| Block::Sentence(sanitize_str(pattern).into_owned())));
    blocks
}

#[expect(clippy::cast_precision_loss, reason = "times for people")]
fn seconds_of(seconds: u64) -> f64 {
    seconds as f64
}

/// Each class before the watch and after it.
fn classes(examined: &Examined) -> Option<Table> {
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
    Some(Table {
        columns: vec![
            ("now", Side::Right),
            ("change", Side::Right),
            ("class", Side::Left),
        ],
        rows: rows.collect(),
        more: None,
    })
}

fn change(before: u64, after: u64) -> String {
    match after.cmp(&before) {
        std::cmp::Ordering::Equal => "·".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", thousands(after - before)),
        std::cmp::Ordering::Less => format!("-{}", thousands(before - after)),
    }
}

fn targets(examined: &Examined) -> Vec<Block> {
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
    vec![Block::Table(Table {
        columns: vec![
            ("count", Side::Right),
            ("class", Side::Left),
            ("target", Side::Left),
        ],
        rows: rows.collect(),
        more: (left > 0).then(|| format!("and {} more in the snapshot", thousands(left))),
    })]
}

fn walls_table(walls: &[Forecast]) -> Vec<Block> {
    let known = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), thousands);
    let rows: Vec<Vec<String>> = walls
        .iter()
        .map(|wall| {
            let percent = wall.percent;
            vec![
                wall.name.clone(),
                known(wall.used),
                thousands(wall.at),
                percent.map_or_else(|| "?".to_owned(), |percent| format!("{percent} %")),
                forecast(wall),
            ]
        })
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    vec![Block::Table(Table {
        columns: vec![
            ("wall", Side::Left),
            ("used", Side::Right),
            ("of", Side::Right),
            ("share", Side::Right),
            ("reached in", Side::Left),
        ],
        rows,
        more: None,
    })]
}

/// When a wall is reached at this rate, with the range that the rate allows.
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
        (Some(eta), Some(range)) => format!("{} ({range})", wording::duration(eta)),
        (Some(eta), None) => wording::duration(eta),
        (None, _) if wall.used.is_none() => return "?".to_owned(),
        (None, _) => "not on the way there".to_owned(),
    };
    format!("{when}{condition}")
}

/// The range of a forecast; absent where it says no more than the forecast.
pub(in crate::report) fn within(soonest: Option<f64>, latest: Option<f64>) -> Option<String> {
    let soonest = wording::duration(soonest?);
    match latest.map(wording::duration) {
        Some(latest) if latest == soonest => None,
        Some(latest) => Some(format!("{soonest} to {latest}")),
        None => Some(format!("{soonest} at the soonest")),
    }
}

fn lint(hit: &LintHit) -> Block {
    Block::Note(Note {
        severity: Some(hit.severity),
        text: sanitize_str(&hit.message).into_owned(),
        rule: Some(hit.rule.to_owned()),
        more: vec![("fix", hit.fix.to_owned())],
    })
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
        text.push_str(&format!(
            "; {} deleted: what is written there is lost",
            counted(database.deleted, "of them is", "of them are")
        ));
    }
    let holders: Vec<String> = database
        .holders
        .iter()
        .take(8)
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
            format!(
                "{comm}(pid {}, {} descriptors{writes})",
                holder.pid, holder.descriptors
            )
        })
        .collect();
    let unlisted = database.holders.len().saturating_sub(8) as u64 + database.holders_more;
    let held = match (holders.is_empty(), unlisted) {
        (true, 0) => "by no other process that could be seen".to_owned(),
        (_, 0) => holders.join(", "),
        (_, more) => format!("{} and {} more", holders.join(", "), thousands(more)),
    };
    Block::Note(Note {
        severity: is_broken.then_some(Severity::Critical),
        text,
        rule: None,
        more: vec![("also held", held)],
    })
}

fn family(relatives: &[Relative], more: u64) -> Option<Section> {
    let of_family = relatives
        .iter()
        .filter(|one| one.relation != Relation::Sharer);
    let zombies = of_family.clone().filter(|one| one.zombie).count() as u64;
    let total = of_family.clone().count();
    let rows = of_family.take(RELATIVES).map(|one| {
        let indent = "  ".repeat(usize::try_from(one.depth).unwrap_or(0).min(12));
        let mark = match (one.relation, one.zombie) {
            (_, true) => "  zombie",
            (Relation::Named, _) => "  ◂",
            _ => "",
        };
        vec![
            one.pid.to_string(),
            one.count.map_or_else(|| "?".to_owned(), thousands),
            format!("{indent}{}{mark}", sanitize(&one.comm)),
        ]
    });
    let left = total.saturating_sub(RELATIVES) as u64 + more;
    let mut blocks = vec![Block::Table(Table {
        columns: vec![
            ("pid", Side::Right),
            ("holds", Side::Right),
            ("command", Side::Left),
        ],
        rows: rows.collect(),
        more: (left > 0).then(|| format!("and {} more", thousands(left))),
    })];
    if zombies > 0 {
        let text = format!(
            "{} not waited for",
            counted(zombies, "child that ended is", "children that ended are")
        );
        blocks.push(Block::Sentence(text));
    }
    (total > 0).then(|| section("family", blocks)).flatten()
}

fn logs(evidence: &Evidence) -> Option<Section> {
    let logs = evidence.material.logs.iter();
    let blocks = logs.flat_map(|log| {
        let path = sanitize(&log.path);
        let lines = counted(log.lines, "line", "lines");
        let head = match log.symptoms.is_empty() {
            true => format!("{path}: {lines}, none speaks of descriptors"),
            false => format!("{path}: {lines}"),
        };
        let notes = log.symptoms.iter().map(symptom);
        std::iter::once(Block::Sentence(head)).chain(notes)
    });
    section("logs", blocks.collect())
}

fn symptom(symptom: &LogSymptom) -> Block {
    let lines = match symptom.count {
        1 => format!("line {}", symptom.first_line),
        count => format!(
            "{} lines, {} to {}",
            thousands(count),
            symptom.first_line,
            symptom.last_line
        ),
    };
    let example = symptom
        .example
        .as_ref()
        .map(|line| ("line", sanitize(line)));
    let next = ("next", symptom.next.clone());
    Block::Note(Note {
        severity: None,
        text: format!("{lines}: {}", symptom.meaning),
        rule: Some(symptom.id.clone()),
        more: example.into_iter().chain([next]).collect(),
    })
}

fn gaps(gaps: &[Gap]) -> Option<Section> {
    let notes = gaps.iter().map(|gap| {
        Block::Note(Note {
            severity: None,
            text: format!("{}: {}", sanitize_str(&gap.what), sanitize_str(&gap.why)),
            rule: None,
            more: vec![("remedy", sanitize_str(&gap.remedy).into_owned())],
        })
    });
    section("not seen", notes.collect())
}

fn versions(evidence: &Evidence) -> Section {
    let machine = &evidence.material.machine;
    let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
    let mut rows = vec![
        vec!["fdguard".to_owned(), machine.fdguard.clone()],
        vec![
            "kernel".to_owned(),
            format!("{} ({})", or_unknown(&machine.kernel), machine.arch),
        ],
        vec!["system".to_owned(), or_unknown(&machine.os)],
    ];
    if let Some(uptime) = machine.uptime_seconds {
        rows.push(vec![
            "host up for".to_owned(),
            wording::duration(seconds_of(uptime)),
        ]);
    }
    for visit in evidence.material.visits.iter().take(RELATIVES) {
        let process = &visit.begin.process;
        let exe = process
            .exe
            .as_ref()
            .map_or_else(|| "?".to_owned(), sanitize);
        let runtime = visit.runtime.as_ref().map_or_else(String::new, |runtime| {
            let version = runtime
                .version
                .as_deref()
                .map_or_else(String::new, |version| format!(" {version}"));
            format!(", {}{}", runtime.name, sanitize_str(&version))
        });
        rows.push(vec![
            format!("pid {}", process.pid),
            format!("{exe}{runtime}"),
        ]);
        if let Some(select) = &visit.select {
            let said = select.to_string();
            rows.push(vec![String::new(), sanitize_str(&said).into_owned()]);
        }
    }
    Section {
        title: "versions".to_owned(),
        blocks: vec![Block::Table(Table {
            columns: vec![("", Side::Left), ("", Side::Left)],
            rows: rows
                .into_iter()
                .map(|row| {
                    row.iter()
                        .map(|cell| sanitize_str(cell).into_owned())
                        .collect()
                })
                .collect(),
            more: None,
        })],
    }
}
