//! The verdict in one word, in one sentence, and what to do next. Pure.

use fdguard_core::lint::Severity;

use crate::check::CheckDepth;
use crate::finding::FileFinding;
use crate::inspection::{FileVerdict, Inspection, Kind};

/// Rules that are about processes and not about the file.
const OF_HOLDERS: [&str; 2] = ["deleted-file", "lost-locks"];

fn worst(found: &[FileFinding], of_file: bool) -> Option<&FileFinding> {
    let mut about = found
        .iter()
        .filter(|one| OF_HOLDERS.contains(&one.rule) != of_file);
    about.find(|one| one.severity == Severity::Critical)
}

pub(crate) fn verdict(inspection: &Inspection) -> FileVerdict {
    let found = &inspection.findings;
    if worst(found, true).is_some() {
        FileVerdict::Damaged
    } else if worst(found, false).is_some() {
        FileVerdict::Endangered
    } else if inspection.is_finding() {
        FileVerdict::Suspicious
    } else if found.iter().any(|one| one.rule == "encrypted") {
        FileVerdict::Encrypted
    } else if inspection.kind == Kind::Sqlite {
        FileVerdict::Healthy
    } else {
        FileVerdict::Clean
    }
}

pub(crate) fn summary(inspection: &Inspection) -> String {
    let found = &inspection.findings;
    let first = match inspection.verdict {
        FileVerdict::Damaged => worst(found, true),
        FileVerdict::Endangered => worst(found, false),
        FileVerdict::Suspicious => found.iter().find(|one| one.severity == Severity::Warning),
        FileVerdict::Encrypted => found.iter().find(|one| one.rule == "encrypted"),
        FileVerdict::Healthy | FileVerdict::Clean => None,
    };
    match (inspection.verdict, first) {
        (FileVerdict::Damaged, Some(one)) if one.rule == "magic" => {
            "damaged: the header is not SQLite's: it was overwritten by something unknown, or this is no database".to_owned()
        }
        (FileVerdict::Damaged, Some(one)) => format!("damaged: {}", one.message),
        (FileVerdict::Endangered, Some(one)) => format!("in danger: {}", one.message),
        (FileVerdict::Suspicious, Some(one)) => format!("suspicious: {}", one.message),
        (FileVerdict::Encrypted, Some(one)) => format!("encrypted: {}", one.message),
        _ => fine(inspection),
    }
}

fn fine(inspection: &Inspection) -> String {
    let checked = inspection
        .sqlite
        .as_ref()
        .and_then(|sqlite| sqlite.check.as_ref());
    match (inspection.kind, checked) {
        (Kind::Sqlite, Some(checked)) => {
            let limit = match checked.depth {
                CheckDepth::Full => "",
                CheckDepth::Quick => ", which does not compare indexes with their tables (`--check full` does)",
            };
            let name = checked.depth.pragma();
            format!("healthy: header, pages and side files are sound, and SQLite's {name} says ok{limit}")
        }
        (Kind::Sqlite, None) => "healthy as far as looked: header, page starts and side files are sound; SQLite's own check was not done".to_owned(),
        (Kind::Empty, _) => "empty: nothing is in it".to_owned(),
        (Kind::Text, _) => "clean: text, with nothing foreign in it".to_owned(),
        (Kind::Other, _) => "clean as far as can be told: no database and no text, and nothing foreign at its start".to_owned(),
    }
}

pub(crate) fn next(inspection: &Inspection) -> Vec<String> {
    let name = inspection.path.to_lossy();
    let mut steps = Vec::new();
    let has = |rule: &str| inspection.findings.iter().find(|one| one.rule == rule);
    if let Some(one) = has("deleted-file") {
        steps.push(format!(
            "stop {} now, before it writes more; what it wrote since is in files without a name",
            pids(one)
        ));
    }
    if let Some(one) = has("lost-locks") {
        steps.push(format!(
            "let nobody else open and close the database; restart {}; `fdguard trace` shows the line that drops the locks (rule lock-drop)",
            pids(one)
        ));
    }
    let is_damaged = inspection.verdict == FileVerdict::Damaged;
    if is_damaged && inspection.kind == Kind::Sqlite {
        let holders: Vec<String> = inspection
            .holders
            .holders()
            .map(|process| process.pid.to_string())
            .collect();
        if !holders.is_empty() {
            if inspection
                .sqlite
                .as_ref()
                .is_some_and(|sqlite| sqlite.heals_by_checkpoint)
            {
                let text = "page 1 is sound in the log: a checkpoint by who holds it (`PRAGMA wal_checkpoint(TRUNCATE)`), or its proper end, heals the header";
                steps.push(text.to_owned());
            }
            steps.push(format!("stop who holds it: {}", holders.join(", ")));
        }
        steps.push(format!(
            "`fdguard inspect --heal {name}` makes a backup and tries to heal a copy"
        ));
    }
    if has("tls-record").is_some() {
        steps.push("keep it from happening again: `fdguard run --protect -- CMD…`; `fdguard trace -- CMD…` names the lines (rule recycled-write)".to_owned());
    }
    steps
}

fn pids(finding: &FileFinding) -> String {
    let list: Vec<String> = finding
        .pids
        .iter()
        .map(|pid| format!("pid {pid}"))
        .collect();
    list.join(", ")
}
