//! What attached processes held before: their opening line is unknown.

use fdguard_core::opened_before::{OpenedBefore, SimilarSite};
use fdguard_core::units;

use super::left;
use crate::report::document::{Block, Section};
use crate::report::table::Side::{self, Left, Right};
use crate::report::table::{class_name, thousands};
use crate::report::trace::name;
use crate::terminal::sanitize;

/// How many kinds are listed.
const MOST: usize = 200;

pub(super) fn section(groups: &[OpenedBefore]) -> Option<Section> {
    const COLUMNS: &[(&str, Side)] = &[
        ("count", Right),
        ("class", Left),
        ("target", Left),
        ("at least old", Right),
        ("opened the same since", Left),
        ("process", Left),
    ];
    if groups.is_empty() {
        return None;
    }
    let table = Block::table(COLUMNS, groups.iter().take(MOST).map(row));
    let more = left(groups.len(), MOST, "kinds");
    let blocks = std::iter::once(table).chain(more).collect();
    Section::of("opened before the attach", blocks)
}

fn row(one: &OpenedBefore) -> Vec<String> {
    let since: Vec<String> = one.opened_since.iter().map(similar).collect();
    vec![
        thousands(one.count),
        class_name(&one.class),
        sanitize(&one.target),
        units::duration(one.age_at_least_seconds),
        since.join(", "),
        format!("{} ({})", sanitize(&one.comm), one.pid),
    ]
}

/// `store.py:17 save: 12, 8 open`.
fn similar(site: &SimilarSite) -> String {
    let line = name::culprit(&site.culprit);
    format!("{line}: {}, {} open", site.opened, site.live)
}
