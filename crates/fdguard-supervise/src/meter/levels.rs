//! Levels as numbers.

use fdguard_core::count::as_f64;

use crate::budget::{Amount, Budget};

/// The levels of a descriptor budget and the limit above them, ascending.
pub(super) fn levels_of(budget: &Budget, soft: Option<u64>) -> Vec<f64> {
    let both = [budget.warn, budget.act].into_iter().flatten();
    let mut levels: Vec<f64> = both.filter_map(|amount| resolved(amount, soft)).collect();
    let wall = soft.map(as_f64);
    levels.extend(wall.map(|wall| wall * 0.98));
    levels.extend(wall);
    levels.sort_by(f64::total_cmp);
    levels
}

/// The first level of a budget.
pub(super) fn lowest(budget: &Budget, wall: Option<u64>) -> Option<f64> {
    resolved(budget.warn.or(budget.act)?, wall)
}

pub(super) fn resolved(amount: Amount, wall: Option<u64>) -> Option<f64> {
    match amount {
        Amount::Count(count) | Amount::Bytes(count) => Some(as_f64(count)),
        Amount::Percent(share) => wall.map(|wall| as_f64(wall) * share / 100.0),
        Amount::PerMinute(_) | Amount::Time(_) => None,
    }
}
