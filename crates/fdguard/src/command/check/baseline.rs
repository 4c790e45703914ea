//! `--baseline FILE`: compares the descriptors held at the end with the last run that passed.

use std::collections::BTreeMap;
use std::path::Path;

use fdguard_core::Class;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::proof::{Proof, budget_finding};
use crate::exit::HintedError;
use crate::{input, output};

const SCHEMA: &str = "fdguard.baseline/1";

/// How many of each class.
pub(super) type HeldCounts = BTreeMap<String, u64>;

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    schema: String,
    taken_at: Timestamp,
    classes: HeldCounts,
}

/// Counts descriptors by class. The state of a connection is momentary, so it is ignored.
pub(super) fn count(classes: impl Iterator<Item = (Class, u64)>) -> HeldCounts {
    let mut held = HeldCounts::new();
    for (class, count) in classes {
        let name = match class {
            Class::Tcp(_) => "tcp".to_owned(),
            other => other.to_string(),
        };
        *held.entry(name).or_default() += count;
    }
    held
}

/// Reads the file. A missing file is not an error.
fn read(path: &Path) -> anyhow::Result<Option<Saved>> {
    let Some(text) = input::read_text_if_present(path)? else {
        return Ok(None);
    };
    let saved: Result<Saved, _> = serde_json::from_str(&text);
    match saved {
        Ok(saved) if saved.schema == SCHEMA => Ok(Some(saved)),
        _ => Err(HintedError::usage(
            format!(
                "{}: not a baseline written by fdguard check",
                path.display()
            ),
            "name another file, or remove this one: the next check that passes writes it",
        )
        .into()),
    }
}

/// Fails early, before the check does work in vain.
pub(super) fn must_be_readable(path: &Path) -> anyhow::Result<()> {
    read(path).map(|_| ())
}

/// Compares with the file, and rewrites it if the check passes.
pub(super) fn apply(path: &Path, proof: &mut Proof) -> anyhow::Result<()> {
    let Some(held) = proof.check.held.clone() else {
        return Ok(());
    };
    if let Some(saved) = read(path)? {
        for (class, before, now) in more(&saved.classes, &held) {
            let why = format!(
                "{now} descriptors of class {class} at the end, up from {before} in the run of {}",
                saved.taken_at.strftime("%Y-%m-%d %H:%M UTC")
            );
            let finding = budget_finding(&proof.diagnosis.process, why, now);
            proof.diagnosis.findings.push(finding);
            proof.check.passed = false;
        }
    }
    if !proof.check.passed {
        return Ok(());
    }
    let saved = Saved {
        schema: SCHEMA.to_owned(),
        taken_at: Timestamp::now(),
        classes: held,
    };
    output::emit(Some(path), |out| {
        serde_json::to_writer_pretty(&mut *out, &saved)?;
        Ok(writeln!(out)?)
    })
}

/// Classes with clearly more descriptors: by a quarter, and by at least three.
fn more<'h>(before: &HeldCounts, now: &'h HeldCounts) -> Vec<(&'h str, u64, u64)> {
    let grown = now.iter().filter_map(|(class, count)| {
        let before = before.get(class).copied().unwrap_or(0);
        (*count > before + (before / 4).max(2)).then_some((class.as_str(), before, *count))
    });
    grown.collect()
}

#[cfg(test)]
mod tests {
    use super::{HeldCounts, more};

    fn held(classes: &[(&str, u64)]) -> HeldCounts {
        let owned = classes
            .iter()
            .map(|(class, count)| ((*class).to_owned(), *count));
        owned.collect()
    }

    #[test]
    fn r36_clearly_more_than_before_is_told_and_a_few_are_not() {
        let before = held(&[("tcp", 40), ("pipe", 2)]);
        assert_eq!(more(&before, &held(&[("tcp", 50), ("pipe", 4)])), []);
        let now = held(&[("tcp", 51), ("pipe", 5), ("eventpoll", 3)]);
        let expected = [("eventpoll", 0, 3), ("pipe", 2, 5), ("tcp", 40, 51)];
        assert_eq!(more(&before, &now), expected);
    }
}
