//! The radar for people and for programs: the table of `top --once` and the `fdguard.host/1`
//! document. The terminal view shares the text of the cells, so that both show the same.

use std::cmp::Ordering;

use fdguard_core::host::HostRow;
use fdguard_core::lint::Severity;
use fdguard_core::wall;

pub mod cell;
mod document;
mod table;

pub use document::{HOST_SCHEMA, HostDocument, document};
pub use table::{TableOptions, table};

/// Percentage of the nearest limit that the process has used.
#[must_use]
pub fn wall_share(row: &HostRow) -> Option<f64> {
    let nearest = row.nearest_wall()?;
    wall::percent(nearest.at.saturating_sub(nearest.left), nearest.at)
}

/// The severity of a share of a limit; `None` below 70 %.
#[must_use]
pub fn severity(share: Option<f64>) -> Option<Severity> {
    match share? {
        share if share >= wall::CRITICAL_FROM => Some(Severity::Critical),
        share if share > wall::WARNING_ABOVE => Some(Severity::Warning),
        _ => None,
    }
}

/// The severity as two columns of text, because some people cannot distinguish the colours.
#[must_use]
pub fn mark(severity: Option<Severity>) -> &'static str {
    match severity {
        Some(Severity::Critical) => "!!",
        Some(Severity::Warning) => "!",
        Some(Severity::Info) | None => "",
    }
}

/// Larger first, unknown last.
#[must_use]
pub fn larger_first(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// The rows by share of their nearest limit, highest first; ties by count and pid.
#[must_use]
pub fn by_wall(rows: &[HostRow]) -> Vec<&HostRow> {
    let mut ranked: Vec<_> = rows.iter().map(|row| (wall_share(row), row)).collect();
    ranked.sort_by(|(a_share, a), (b_share, b)| {
        larger_first(*a_share, *b_share)
            .then_with(|| b.count.cmp(&a.count))
            .then_with(|| a.pid.cmp(&b.pid))
    });
    ranked.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests {
    use fdguard_core::lint::Severity;

    use super::{mark, severity};

    #[test]
    fn r12_warning_is_above_seventy_and_critical_from_ninety() {
        assert_eq!(severity(Some(70.0)), None);
        assert_eq!(severity(Some(70.1)), Some(Severity::Warning));
        assert_eq!(severity(Some(90.0)), Some(Severity::Critical));
        assert_eq!(severity(None), None);
        assert_eq!(mark(severity(Some(99.0))), "!!");
    }
}
