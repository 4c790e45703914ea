//! A budget as a flag: `fds=80%:90%`.

use std::fmt;
use std::str::FromStr;

use fdguard_core::class_pattern::ClassPattern;
use fdguard_core::units;

use super::amount::{self, Amount};
use super::{Budget, BudgetSetting, Measure};

/// Why a budget is invalid, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadBudget(pub(super) String);

/// The names of the measures, as written.
const NAMES: &[&str] = &[
    "fds",
    "highest",
    "class:NAME",
    "growth",
    "wall",
    "zombies",
    "memory",
    "children",
];

/// If only the action level is given, the warning level is this fraction of it.
const EARLIER: f64 = 0.8;

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fds => "fds",
            Self::Highest => "highest",
            Self::Class(class) => return write!(f, "class:{class}"),
            Self::Growth => "growth",
            Self::Wall => "wall",
            Self::Zombies => "zombies",
            Self::Memory => "memory",
            Self::Children => "children",
        })
    }
}

impl FromStr for Measure {
    type Err = BadBudget;

    fn from_str(name: &str) -> Result<Self, BadBudget> {
        if let Some(class) = name.strip_prefix("class:") {
            return class_of(class).map(Self::Class);
        }
        Ok(match name {
            "fds" => Self::Fds,
            "highest" => Self::Highest,
            "growth" => Self::Growth,
            "wall" => Self::Wall,
            "zombies" => Self::Zombies,
            "memory" => Self::Memory,
            "children" => Self::Children,
            _ => return Err(unknown(name)),
        })
    }
}

/// A class, or a family by its bare name: `tcp` and `sqlite` cover all of their classes.
fn class_of(name: &str) -> Result<ClassPattern, BadBudget> {
    let family = match name {
        "tcp" => "tcp:*",
        "sqlite" => "sqlite-*",
        "bpf" => "bpf-*",
        other => other,
    };
    family.parse::<ClassPattern>().map_err(|error| {
        let known = fdguard_core::class::NAMES.iter().map(|(_, name)| *name);
        let nearest = nearest(name, known).filter(|_| !error.to_string().contains("did you mean"));
        let hint = nearest.map(|name| format!(" (did you mean \"class:{name}\"?)"));
        BadBudget(format!("{error}{}", hint.unwrap_or_default()))
    })
}

fn unknown(name: &str) -> BadBudget {
    let hint = match nearest(name, NAMES.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        // A class without its prefix is the most likely mistake.
        None if name.parse::<ClassPattern>().is_ok() => format!("did you mean \"class:{name}\"?"),
        None => format!("use one of {}", NAMES.join(", ")),
    };
    BadBudget(format!("unknown budget {name:?}: {hint}"))
}

impl Budget {
    /// From the two levels as written; an absent one does not apply.
    fn from_levels(
        what: Measure,
        warn: Option<&str>,
        act: Option<&str>,
    ) -> Result<Self, BadBudget> {
        let read = |text: Option<&str>| text.map(|text| level(&what, text)).transpose();
        let (warn, act) = (read(warn)?, read(act)?);
        if warn.is_none() && act.is_none() {
            return Err(BadBudget(format!("{what}: level missing")));
        }
        if let (Some(first), Some(second)) = (warn, act) {
            in_order(&what, first, second)?;
        }
        Ok(Self::new(what, warn, act))
    }

    /// From one level: act there, and warn a little earlier.
    fn from_one(what: Measure, text: &str) -> Result<Self, BadBudget> {
        let act = level(&what, text)?;
        let warn = earlier(&what, act);
        Ok(Self::new(what, warn, Some(act)))
    }
}

impl FromStr for BudgetSetting {
    type Err = BadBudget;

    fn from_str(text: &str) -> Result<Self, BadBudget> {
        let Some((name, levels)) = text.split_once('=') else {
            let form = "use NAME=WARN:ACT, NAME=ACT, NAME=WARN: or NAME=off, such as fds=80%:90%";
            return Err(BadBudget(format!("{text:?}: {form}")));
        };
        let what: Measure = name.trim().parse()?;
        Self::parse_levels(what, levels.trim())
    }
}

impl BudgetSetting {
    /// Parses the text after the name.
    fn parse_levels(what: Measure, levels: &str) -> Result<Self, BadBudget> {
        if levels == "off" {
            return Ok(Self::Off(what));
        }
        let filled = |text: &'_ str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let budget = match levels.split_once(':') {
            None if levels.is_empty() => {
                return Err(BadBudget(format!("{what}: level missing")));
            }
            None => Budget::from_one(what, levels)?,
            Some((warn, act)) => {
                let (warn, act) = (filled(warn), filled(act));
                Budget::from_levels(what, warn.as_deref(), act.as_deref())?
            }
        };
        Ok(Self::Set(budget))
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", self.what)?;
        if let Some(warn) = self.warn {
            write!(f, "{warn}")?;
        }
        f.write_str(":")?;
        self.act.map_or(Ok(()), |act| write!(f, "{act}"))
    }
}

/// One level of this measure.
fn level(what: &Measure, text: &str) -> Result<Amount, BadBudget> {
    let of = |problem: String| BadBudget(format!("{what}: {problem}"));
    if let Some(share) = text.strip_suffix('%') {
        return percent(what, share.trim()).map_err(of);
    }
    let amount = match what {
        Measure::Growth => amount::per_minute(text).map(Amount::PerMinute),
        Measure::Wall => units::parse_duration(text).map(Amount::Time),
        Measure::Memory => memory(text).map(Amount::Bytes),
        _ => text
            .parse()
            .map(Amount::Count)
            .map_err(|_error| format!("{text:?} is not a number: use {}", example(what))),
    };
    let amount = amount.map_err(of)?;
    let nothing = match amount {
        Amount::Count(count) | Amount::Bytes(count) => count == 0,
        Amount::PerMinute(rate) => rate <= 0.0,
        Amount::Time(time) => time.is_zero(),
        Amount::Percent(_) => false,
    };
    if nothing {
        return Err(of(
            "the level must be greater than 0; use \"off\" to disable the budget".to_owned(),
        ));
    }
    Ok(amount)
}

/// A bare number is more likely a number of megabytes than of bytes.
fn memory(text: &str) -> Result<u64, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "'{text}' is not a size: add a unit, such as {text}M"
        ));
    }
    units::parse_size(text)
}

fn example(what: &Measure) -> &'static str {
    match what {
        Measure::Fds => "900, or a percentage such as 80%",
        Measure::Highest => "900, or a percentage of 1024 such as 90%",
        _ => "200",
    }
}

fn percent(what: &Measure, share: &str) -> Result<Amount, String> {
    if !matches!(what, Measure::Fds | Measure::Highest) {
        let takes = match what {
            Measure::Growth => "a rate such as 30/min",
            Measure::Wall => "a duration such as 30m",
            Measure::Memory => "a size such as 512MiB",
            _ => "a number",
        };
        return Err(format!("percentages are not supported: use {takes}"));
    }
    let digits = share.chars().all(|c| c.is_ascii_digit() || c == '.');
    let value: Option<f64> = share.parse().ok().filter(|_| digits);
    match value {
        None => Err(format!("{share:?} is not a percentage")),
        Some(value) if value > 100.0 => Err(format!("{share}% is too high: use 100% at most")),
        Some(value) if value <= 0.0 => Err("the level must be greater than 0%".to_owned()),
        Some(value) => Ok(Amount::Percent(value)),
    }
}

/// The warning must come first. A percentage and a number cannot be compared before the limit is
/// known: then the order is up to the user.
fn in_order(what: &Measure, warn: Amount, act: Amount) -> Result<(), BadBudget> {
    let (first, second) = match (warn, act) {
        (Amount::Count(a), Amount::Count(b)) | (Amount::Bytes(a), Amount::Bytes(b)) => (
            fdguard_core::count::as_f64(a),
            fdguard_core::count::as_f64(b),
        ),
        (Amount::Percent(a), Amount::Percent(b)) | (Amount::PerMinute(a), Amount::PerMinute(b)) => {
            (a, b)
        }
        // Less time is worse.
        (Amount::Time(a), Amount::Time(b)) => (b.as_secs_f64(), a.as_secs_f64()),
        _ => return Ok(()),
    };
    if first <= second {
        return Ok(());
    }
    let word = if matches!(what, Measure::Wall) {
        "shorter"
    } else {
        "lower"
    };
    Err(BadBudget(format!(
        "{what}: the act level ({act}) must not be {word} than the warn level ({warn}): write WARN:ACT"
    )))
}

fn earlier(what: &Measure, act: Amount) -> Option<Amount> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a number that fits"
    )]
    let part = |count: u64| (fdguard_core::count::as_f64(count) * EARLIER).ceil() as u64;
    match act {
        Amount::Count(count) => Some(part(count))
            .filter(|warn| *warn < count)
            .map(Amount::Count),
        Amount::Bytes(bytes) => Some(Amount::Bytes(part(bytes))),
        Amount::Percent(share) => Some(Amount::Percent(share * EARLIER)),
        Amount::PerMinute(rate) => Some(Amount::PerMinute(rate * EARLIER)),
        Amount::Time(time) if *what == Measure::Wall => Some(Amount::Time(time * 2)),
        Amount::Time(_) => None,
    }
}

/// The known name that was most likely meant: at most two letters differ, and not all.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.map(|known| (differing(name, known), known));
    let near = near.filter(|(steps, known)| *steps <= 2 && *steps < known.len());
    near.min_by_key(|(steps, _)| *steps).map(|(_, known)| known)
}

/// The edit distance.
fn differing(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (place, candidate) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *candidate);
            diagonal = row[place + 1];
            row[place + 1] = changed.min(row[place] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}
