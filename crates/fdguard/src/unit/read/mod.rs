//! Parses units into trees with line numbers: one shape for all formats.

use super::UnitTarget;

pub(super) mod ini;
pub(super) mod plist;
pub(super) mod yaml;

/// A value with its line, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitNode {
    /// Its line number.
    pub line: usize,
    /// Its value.
    pub value: UnitValue,
}

/// The value of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitValue {
    /// Text, numbers and booleans, as written.
    Text(String),
    /// In order.
    List(Vec<UnitNode>),
    /// In order; a name may occur twice. The line is that of the name.
    Map(Vec<(String, UnitNode)>),
}

/// Why a file is not a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableUnit {
    /// The line, if known.
    pub line: Option<usize>,
    /// The reason.
    pub why: String,
}

impl UnreadableUnit {
    fn at(line: usize, why: impl Into<String>) -> Self {
        Self {
            line: Some(line),
            why: why.into(),
        }
    }
}

/// Reads a unit.
pub fn read(target: UnitTarget, text: &str) -> Result<UnitNode, UnreadableUnit> {
    target.kind().read(text)
}

/// Guesses the target of a file from its name or contents.
#[must_use]
pub fn guess(name: &str, text: &str) -> Option<UnitTarget> {
    let end = name.rsplit('.').next().unwrap_or_default();
    let has = |start: &&str| {
        text.lines()
            .any(|line| line.trim_start().starts_with(start))
    };
    let by_name = |target: &UnitTarget| target.kind().signs().0.contains(&end);
    let by_lines = |target: &UnitTarget| target.kind().signs().1.iter().any(has);
    let mut targets = UnitTarget::ALL.into_iter();
    let named = targets.clone().find(by_name);
    named.or_else(|| targets.find(by_lines))
}

impl UnitNode {
    /// The last value of this name: later ones win.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.pairs()
            .iter()
            .rev()
            .find(|it| it.0 == name)
            .map(|it| &it.1)
    }

    /// Its names and values, if it has names.
    #[must_use]
    pub fn pairs(&self) -> &[(String, Self)] {
        match &self.value {
            UnitValue::Map(pairs) => pairs,
            _ => &[],
        }
    }

    /// Its text, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            UnitValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Its members, if it is a list.
    #[must_use]
    pub fn list(&self) -> Option<&[Self]> {
        match &self.value {
            UnitValue::List(list) => Some(list),
            _ => None,
        }
    }

    /// Whether it means yes in any of the formats.
    #[must_use]
    pub fn is_yes(&self) -> bool {
        let text = self.text().unwrap_or_default().to_ascii_lowercase();
        matches!(text.as_str(), "true" | "yes" | "on" | "1")
    }

    /// Whether it means no.
    #[must_use]
    pub fn is_no(&self) -> bool {
        let text = self.text().unwrap_or_default().to_ascii_lowercase();
        matches!(text.as_str(), "false" | "no" | "off" | "0")
    }
}

#[cfg(test)]
mod tests;
