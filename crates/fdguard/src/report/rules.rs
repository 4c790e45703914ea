//! The tables of lints, rules and hazards, for people and programs.

use std::io::Write;

use fdguard_core::catalog::Check;
use serde::Serialize;

use super::table::{Side, columns};

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    rules: &'a [Check],
}

/// Writes these checks: one of the tables of [`fdguard_core::catalog`].
pub fn write(out: &mut dyn Write, checks: &[Check], json: bool) -> anyhow::Result<()> {
    if json {
        let document = Document {
            schema: "fdguard.rules/1",
            rules: checks,
        };
        serde_json::to_writer(&mut *out, &document)?;
        writeln!(out)?;
        return Ok(());
    }
    let rows: Vec<Vec<String>> = checks
        .iter()
        .map(|check| {
            let (_, severity) = super::style::severity(check.severity);
            vec![
                check.id.to_owned(),
                severity.to_owned(),
                check.summary.to_owned(),
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
    use fdguard_core::catalog::{hazards, lints, rules};

    use super::write;

    #[test]
    fn all_tables_are_listed_under_one_schema() {
        for (checks, kind) in [(lints(), "lint"), (rules(), "rule"), (hazards(), "hazard")] {
            let mut json = Vec::new();
            write(&mut json, &checks, true).unwrap();
            let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
            assert_eq!(json["schema"], "fdguard.rules/1");
            let first = &json["rules"][0];
            assert_eq!(
                (&first["id"], &first["kind"]),
                (&checks[0].id.into(), &kind.into())
            );
            assert_eq!(first["fix"].is_string(), kind != "rule");
            let mut text = Vec::new();
            write(&mut text, &checks, false).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert_eq!(text.lines().count(), checks.len());
        }
    }
}
