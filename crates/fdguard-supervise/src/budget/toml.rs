//! Budgets as a table of a configuration: `fds = "80%:90%"`, `zombies = 50`,
//! `memory = { warn = "512MiB", act = "1GiB" }`.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::spec::BadBudget;
use super::{Budget, BudgetSetting, Measure};

/// A parsed table of budgets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budgets(pub Vec<BudgetSetting>);

/// The levels of one budget.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a level such as 900 or \"80%:90%\", or a table with warn and act"
)]
enum TomlAmount {
    Whole(u64),
    Text(String),
    Table(Levels),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Levels {
    warn: Option<Level>,
    act: Option<Level>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a level such as 900 or \"80%\"")]
enum Level {
    Whole(u64),
    Text(String),
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(count) => write!(f, "{count}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl TomlAmount {
    fn into_setting(self, what: Measure) -> Result<BudgetSetting, BadBudget> {
        match self {
            Self::Whole(count) => BudgetSetting::parse_levels(what, &count.to_string()),
            Self::Text(text) => BudgetSetting::parse_levels(what, text.trim()),
            Self::Table(levels) => {
                let written = |level: Option<Level>| level.map(|level| level.to_string());
                let (warn, act) = (written(levels.warn), written(levels.act));
                Budget::from_levels(what, warn.as_deref(), act.as_deref()).map(BudgetSetting::Set)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Measure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(D::Error::custom)
    }
}

/// The levels of this measure: this way an error has the position of the value.
struct Of(Measure);

impl<'de> DeserializeSeed<'de> for Of {
    type Value = BudgetSetting;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<BudgetSetting, D::Error> {
        let written = TomlAmount::deserialize(deserializer)?;
        written.into_setting(self.0).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Budgets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Table;
        impl<'de> Visitor<'de> for Table {
            type Value = Budgets;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of budgets such as fds = \"80%:90%\"")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Budgets, A::Error> {
                let mut all = Vec::new();
                while let Some(what) = map.next_key::<Measure>()? {
                    all.push(map.next_value_seed(Of(what))?);
                }
                Ok(Budgets(all))
            }
        }
        deserializer.deserialize_map(Table)
    }
}
