//! The list of rules, for people and programs.

use std::io::Write;

use fdguard_core::rule::{self, Rule};
use serde::Serialize;

use super::table::{Side, columns};
use crate::unit;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    rules: &'a [&'a Rule],
}

/// Every rule of every kind: those of the model, and those of units.
#[must_use]
pub fn all() -> Vec<&'static Rule> {
    rule::rules().chain(unit::lint::every_rule()).collect()
}

/// Writes these rules: `--list-rules`.
pub fn write(out: &mut dyn Write, rules: &[&Rule], json: bool) -> anyhow::Result<()> {
    if json {
        let document = Document {
            schema: "fdguard.rules/1",
            rules,
        };
        return super::json::write_line(out, &document);
    }
    let rows: Vec<Vec<String>> = rules
        .iter()
        .map(|rule| {
            let (_, severity) = super::style::severity(rule.severity);
            vec![
                rule.id.to_owned(),
                severity.to_owned(),
                rule.summary.to_owned(),
            ]
        })
        .collect();
    for line in columns(&rows, &[Side::Left, Side::Left, Side::Left], None) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fdguard_core::rule::{RuleKind, of_kind};

    use super::{all, write};

    #[test]
    fn all_tables_are_listed_under_one_schema() {
        for (kind, name) in [
            (RuleKind::Lint, "lint"),
            (RuleKind::Growth, "rule"),
            (RuleKind::Hazard, "hazard"),
        ] {
            let rules = of_kind(kind);
            let mut json = Vec::new();
            write(&mut json, &rules, true).unwrap();
            let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
            assert_eq!(json["schema"], "fdguard.rules/1");
            let first = &json["rules"][0];
            assert_eq!(
                (&first["id"], &first["kind"]),
                (&rules[0].id.into(), &name.into())
            );
            assert_eq!(first["fix"].is_string(), name != "rule");
            let mut text = Vec::new();
            write(&mut text, &rules, false).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert_eq!(text.lines().count(), rules.len());
        }
    }

    #[test]
    fn every_kind_is_listed_and_no_id_twice() {
        let all = all();
        for kind in RuleKind::ALL {
            assert!(all.iter().any(|rule| rule.kind == kind), "{kind:?}");
        }
        let ids: BTreeSet<&str> = all.iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), all.len());
    }
}
