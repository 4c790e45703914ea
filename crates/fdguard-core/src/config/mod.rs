//! The user's `fdguard.toml`: levels, expectations and suppressions.
//!
//! The text becomes a [`Config`] here; where the file lies, and what a flag of the same name
//! overrides, is the command's. A file with a mistake is refused as a whole, with one line that
//! says where.

use serde::Deserialize;
use toml::Spanned;

mod error;
mod expectation;
mod levels;
mod suppression;
#[cfg(test)]
mod tests;

pub use crate::class_pattern::{BadClassPattern, ClassPattern};
pub use error::ConfigError;
pub use expectation::{BadExpectation, Expectation};
pub use levels::Levels;
pub use suppression::{Suppression, SuppressionQuery, Suppressions};

use error::Place;

/// Everything the file says; what it leaves out is as [`Config::default`] has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// From where on a share or a count is too much.
    pub levels: Levels,
    /// The expected number of descriptors.
    pub expectations: Vec<Expectation>,
    /// What was suspected and found to be in order.
    pub suppressions: Suppressions,
    /// A playbook of the user's own, as written: the command finds and reads it.
    pub playbook: Option<String>,
}

impl Config {
    /// Reads the text of the file.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let file: File =
            toml::from_str(text).map_err(|error| ConfigError::of_toml(text, &error))?;
        let place = Place { text };
        let levels = match file.levels {
            Some(levels) => levels::read(levels, place)?,
            None => Levels::default(),
        };
        let playbook = match file.playbook {
            Some(path) if path.get_ref().is_empty() => {
                return Err(place.error(&path, "playbook", "must not be empty"));
            }
            path => path.map(Spanned::into_inner),
        };
        Ok(Self {
            levels,
            expectations: expectation::read(file.expect, place)?,
            suppressions: suppression::read(file.cleared, place)?,
            playbook,
        })
    }
}

/// The file as it is written: types and keys are checked, values are not yet.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    levels: Option<levels::Table>,
    #[serde(default)]
    expect: Vec<expectation::Table>,
    #[serde(default)]
    cleared: Vec<suppression::Table>,
    playbook: Option<Spanned<String>>,
}
