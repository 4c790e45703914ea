//! The table of lints, for people and programs.

use std::io::Write;

use fdguard_core::lint::{LINTS, Severity};
use serde::Serialize;

use super::table::{Side, columns};

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    rules: Vec<Rule>,
}

#[derive(Serialize)]
struct Rule {
    id: &'static str,
    severity: Severity,
    summary: &'static str,
    cwe: Option<u16>,
    requirement: &'static str,
    fix: &'static str,
}

/// Writes every lint.
pub fn write(out: &mut dyn Write, json: bool) -> anyhow::Result<()> {
    if json {
        let rules = LINTS
            .iter()
            .map(|lint| Rule {
                id: lint.id,
                severity: lint.severity,
                summary: lint.summary,
                cwe: lint.cwe,
                requirement: lint.requirement,
                fix: lint.fix,
            })
            .collect();
        serde_json::to_writer(
            &mut *out,
            &Document {
                schema: "fdguard.rules/1",
                rules,
            },
        )?;
        writeln!(out)?;
        return Ok(());
    }
    let rows: Vec<Vec<String>> = LINTS
        .iter()
        .map(|lint| {
            let (_, severity) = super::style::severity(lint.severity);
            vec![
                lint.id.to_owned(),
                severity.to_owned(),
                lint.summary.to_owned(),
            ]
        })
        .collect();
    for line in columns(&rows, &[Side::Left, Side::Left, Side::Left], None) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
