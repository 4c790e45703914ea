//! Verdict, one-sentence summary and next steps of an inspection. Pure.

use fdguard_core::lint::Severity;

use crate::check::CheckDepth;
use crate::finding::FileFinding;
use crate::inspection::{FileVerdict, Inspection, Kind};

/// Rules about processes and not about the file.
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
            "damaged: the SQLite header is missing: it was overwritten by unknown data, or this is not a database".to_owned()
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
                CheckDepth::Quick => " (it does not compare indexes with tables; `--check full` does)",
            };
            let name = checked.depth.pragma();
            format!("healthy: header, pages and side files are intact, and SQLite's {name} reports ok{limit}")
        }
        (Kind::Sqlite, None) => "healthy as far as checked: header, page starts and side files are intact; SQLite's integrity check was not run".to_owned(),
        (Kind::Empty, _) => "empty: the file has no content".to_owned(),
        (Kind::Text, _) => "clean: text without foreign data".to_owned(),
        (Kind::Other, _) => "clean as far as checked: neither a database nor text, and no foreign data at its start".to_owned(),
    }
}

pub(crate) fn next(inspection: &Inspection) -> Vec<String> {
    let name = inspection.path.to_lossy();
    let mut steps = Vec::new();
    let has = |rule: &str| inspection.findings.iter().find(|one| one.rule == rule);
    if let Some(one) = has("deleted-file") {
        steps.push(format!(
            "stop {} now, before it writes more; what it wrote since then is in deleted files",
            pids(one)
        ));
    }
    if let Some(one) = has("lost-locks") {
        steps.push(format!(
            "keep other processes from closing the database; restart {}; run `fdguard trace` to find the line that drops the locks (rule lock-drop)",
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
                let text = "run a checkpoint (`PRAGMA wal_checkpoint(TRUNCATE)`) in the process that holds it, or shut that process down cleanly: page 1 is intact in the WAL, and this heals the header";
                steps.push(text.to_owned());
            }
            steps.push(format!(
                "stop the processes that hold it: {}",
                holders.join(", ")
            ));
        }
        steps.push(format!(
            "run `fdguard inspect --heal {name}`: it makes a backup and tries to heal a copy"
        ));
    }
    if has("tls-record").is_some() {
        steps.push("prevent a recurrence with `fdguard run --protect -- CMD…`; find the lines with `fdguard trace -- CMD…` (rule recycled-write)".to_owned());
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
