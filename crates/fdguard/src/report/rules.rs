//! The tables of lints and of rules, for people and programs.

use std::io::Write;

use fdguard_core::lint::{LINTS, Severity};
use fdguard_core::rule::RULES;
use serde::Serialize;

use super::table::{Side, columns};

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    rules: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    id: &'static str,
    severity: Severity,
    summary: &'static str,
    cwe: Option<u16>,
    requirement: &'static str,
    /// What is found over time is told with its own next step.
    fix: Option<&'static str>,
}

/// Writes every lint over a snapshot.
pub fn write_lints(out: &mut dyn Write, json: bool) -> anyhow::Result<()> {
    let rows = LINTS.iter().map(|lint| Row {
        id: lint.id,
        severity: lint.severity,
        summary: lint.summary,
        cwe: lint.cwe,
        requirement: lint.requirement,
        fix: Some(lint.fix),
    });
    write(out, rows.collect(), json)
}

/// Writes every rule over a watch.
pub fn write_rules(out: &mut dyn Write, json: bool) -> anyhow::Result<()> {
    let rows = RULES.iter().map(|rule| Row {
        id: rule.id,
        severity: rule.severity,
        summary: rule.summary,
        cwe: rule.cwe,
        requirement: rule.requirement,
        fix: None,
    });
    write(out, rows.collect(), json)
}

fn write(out: &mut dyn Write, rules: Vec<Row>, json: bool) -> anyhow::Result<()> {
    if json {
        let schema = "fdguard.rules/1";
        serde_json::to_writer(&mut *out, &Document { schema, rules })?;
        writeln!(out)?;
        return Ok(());
    }
    let cells = |row: &Row| {
        let (_, severity) = super::style::severity(row.severity);
        [row.id, severity, row.summary].map(str::to_owned).to_vec()
    };
    let rows: Vec<Vec<String>> = rules.iter().map(cells).collect();
    for line in columns(&rows, &[Side::Left, Side::Left, Side::Left], None) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
