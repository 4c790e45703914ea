//! The user's `fdguard.toml`: levels, expectations, suppressions and permissions.
//!
//! This module turns the text into a [`Config`]; the command decides where the file is and which
//! flags override it. A file with a mistake is refused as a whole, with one line that says where.

use serde::Deserialize;
use toml::Spanned;

mod expectation;
mod levels;
mod serve;
mod suppression;
#[cfg(test)]
mod tests;

pub use crate::class_pattern::{BadClassPattern, ClassPattern};
pub use expectation::{BadExpectation, Expectation};
pub use levels::Levels;
pub use suppression::{Suppression, SuppressionQuery, Suppressions};

use crate::located::{ConfigMistake, FileText};

/// The whole file; [`Config::default`] supplies what it omits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The share or count that is too much.
    pub levels: Levels,
    /// The expected number of descriptors.
    pub expectations: Vec<Expectation>,
    /// Accepted findings.
    pub suppressions: Suppressions,
    /// Path of a user's playbook, as written: the command finds and reads it.
    pub playbook: Option<String>,
    /// Services whose confirmed leaks `fdguard serve` may trace.
    pub traced_services: Vec<String>,
}

impl Config {
    /// Reads the text of the file.
    pub fn parse(text: &str) -> Result<Self, ConfigMistake> {
        let place = FileText(text);
        let file: File = place.read()?;
        let levels = match file.levels {
            Some(levels) => levels::read(levels, place)?,
            None => Levels::default(),
        };
        let playbook = match file.playbook {
            Some(path) if path.get_ref().is_empty() => {
                return Err(place.mistake(&path, "playbook", "must not be empty"));
            }
            path => path.map(Spanned::into_inner),
        };
        Ok(Self {
            levels,
            expectations: expectation::read(file.expect, place)?,
            suppressions: suppression::read(file.cleared, place)?,
            playbook,
            traced_services: serve::read(file.serve, place)?,
        })
    }
}

/// The file as written: types and keys are checked, values are not yet.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    levels: Option<levels::Table>,
    #[serde(default)]
    expect: Vec<expectation::Table>,
    #[serde(default)]
    cleared: Vec<suppression::Table>,
    playbook: Option<Spanned<String>>,
    serve: Option<serve::Table>,
}
