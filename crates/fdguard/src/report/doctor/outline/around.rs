//! The context of the processes: process tree, logs, gaps, versions.

use fdguard_core::evidence::{Evidence, LogSymptom, Machine, Relation, Relative};
use fdguard_core::units;

use super::seconds_of;
use crate::report::document::{Block, Section};
use crate::report::table::Side::{Left, Right};
use crate::report::table::{counted, thousands};
use crate::terminal::{sanitize, sanitize_str};

/// How many relatives are shown.
const RELATIVES: usize = 40;

pub(super) fn family(relatives: &[Relative], more: u64) -> Option<Section> {
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
    let mut blocks = vec![Block::table(
        &[("pid", Right), ("open", Right), ("command", Left)],
        rows,
    )];
    if left > 0 {
        blocks.push(Block::Remark(format!("and {} more", thousands(left))));
    }
    if zombies > 0 {
        let text = format!(
            "{} (the parent does not wait for its children)",
            counted(zombies, "zombie")
        );
        blocks.push(Block::Sentence(text));
    }
    Section::of("process tree", blocks).filter(|_| total > 0)
}

pub(super) fn logs(evidence: &Evidence) -> Option<Section> {
    let logs = evidence.material.logs.iter();
    let blocks = logs.flat_map(|log| {
        let path = sanitize(&log.path);
        let lines = counted(log.lines, "line");
        let head = match log.symptoms.is_empty() {
            true => format!("{path}: {lines}, none about descriptors"),
            false => format!("{path}: {lines}"),
        };
        let notes = log.symptoms.iter().map(symptom);
        std::iter::once(Block::Sentence(head)).chain(notes)
    });
    Section::of("logs", blocks.collect())
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
    let text = format!("{lines}: {}", symptom.meaning);
    let more = example.into_iter().chain([next]).collect();
    Block::note(None, text, Some(&symptom.id), more)
}

pub(super) fn versions(evidence: &Evidence) -> Section {
    let machine = &evidence.material.machine;
    let mut rows = vec![
        vec!["fdguard".to_owned(), machine.fdguard.clone()],
        vec!["kernel".to_owned(), kernel(machine)],
        vec!["system".to_owned(), or_unknown(machine.os.as_ref())],
    ];
    if let Some(uptime) = machine.uptime_seconds {
        rows.push(vec![
            "uptime".to_owned(),
            units::duration(seconds_of(uptime)),
        ]);
    }
    let shown = super::fold::groups(evidence).into_iter().take(RELATIVES);
    let shown = shown.filter_map(|group| {
        let visit = evidence.material.visits.get(*group.members.first()?)?;
        Some((visit, group.members.len().saturating_sub(1)))
    });
    for (visit, others) in shown {
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
            match others {
                0 => format!("pid {}", process.pid),
                others => format!("pid {} and {others} similar", process.pid),
            },
            format!("{exe}{runtime}"),
        ]);
        if let Some(select) = &visit.select {
            let said = select.to_string();
            rows.push(vec![String::new(), sanitize_str(&said).into_owned()]);
        }
    }
    let clean = |cell: &String| sanitize_str(cell).into_owned();
    let rows = rows.iter().map(|row| row.iter().map(clean).collect());
    Section {
        title: "versions".to_owned(),
        blocks: vec![Block::table(&[("", Left), ("", Left)], rows)],
    }
}

fn or_unknown(text: Option<&String>) -> String {
    text.cloned().unwrap_or_else(|| "?".to_owned())
}

/// A recording does not contain the machine.
fn kernel(machine: &Machine) -> String {
    match machine.arch.as_str() {
        "" => or_unknown(machine.kernel.as_ref()),
        arch => format!("{} ({arch})", or_unknown(machine.kernel.as_ref())),
    }
}
