//! `[[cleared]]`: suppressions, the findings that the user looked into and accepts.
//!
//! People stop reading a finding that comes back every day, and one that is silenced for good hides
//! a new leak in the same place. So an entry has a reason and a date, and may have a maximum count
//! and an expiry date.

use jiff::civil::Date;
use serde::Deserialize;
use toml::Spanned;

use super::{BadClassPattern, ClassPattern};
use crate::Class;
use crate::glob::Glob;
use crate::located::{ConfigMistake, FileText};
use crate::origin::Frame;
use crate::proof::{BadCodeLine, CodeLine};
use crate::rule;

/// One accepted finding. It covers findings that match every rule, line, class, target and owner
/// that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppression {
    /// Findings of this rule.
    pub rule: Option<String>,
    /// Findings about this line.
    pub line: Option<CodeLine>,
    /// Descriptors of this class.
    pub class: Option<ClassPattern>,
    /// Descriptors on this target.
    pub target: Option<Glob>,
    /// Descriptors of processes with this command name.
    pub owner: Option<Glob>,
    /// Up to this many: more is a new finding.
    pub up_to: Option<u64>,
    /// Why it is accepted.
    pub reason: String,
    /// When it was accepted.
    pub date: Date,
    /// The last day on which it applies; absent: it does not expire.
    pub until: Option<Date>,
}

impl Suppression {
    /// Whether its last day is over.
    #[must_use]
    pub fn is_expired(&self, today: Date) -> bool {
        self.until.is_some_and(|until| today > until)
    }

    /// Whether it matches, regardless of the count and the date. An entry that names a target does
    /// not match an unknown target; an entry that names a rule or a line matches only findings
    /// ([`Suppression::covers_query`]).
    #[must_use]
    pub fn covers(&self, class: &Class, target: Option<&[u8]>, owner: &[u8]) -> bool {
        self.rule.is_none() && self.line.is_none() && self.fits(Some(class), target, owner)
    }

    /// Whether it applies to this finding or hazard.
    #[must_use]
    pub fn covers_query(&self, query: &SuppressionQuery<'_>) -> bool {
        let line_fits = |line: &CodeLine| line.is_in(query.stack);
        self.rule.as_ref().is_none_or(|rule| rule == query.rule)
            && self.line.as_ref().is_none_or(line_fits)
            && self.fits(query.class, query.target, query.owner)
    }

    fn fits(&self, class: Option<&Class>, target: Option<&[u8]>, owner: &[u8]) -> bool {
        let class_fits = |wanted: &ClassPattern| class.is_some_and(|class| wanted.matches(class));
        let target_fits = |wanted: &Glob| target.is_some_and(|target| wanted.matches(target));
        self.class.as_ref().is_none_or(class_fits)
            && self.target.as_ref().is_none_or(target_fits)
            && self.owner.as_ref().is_none_or(|one| one.matches(owner))
    }
}

/// A finding, as matched against the entries.
#[derive(Clone, Copy, Debug)]
pub struct SuppressionQuery<'a> {
    /// The rule.
    pub rule: &'a str,
    /// The class of the descriptors.
    pub class: Option<&'a Class>,
    /// What they refer to.
    pub target: Option<&'a [u8]>,
    /// The command name of their process.
    pub owner: &'a [u8],
    /// How many there are.
    pub count: u64,
    /// The stack of the representative one.
    pub stack: &'a [Frame],
}

/// All entries, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressions(Vec<Suppression>);

impl Suppressions {
    /// The first unexpired entry that silences this many descriptors.
    #[must_use]
    pub fn find(
        &self,
        class: &Class,
        target: Option<&[u8]>,
        owner: &[u8],
        count: u64,
        today: Date,
    ) -> Option<&Suppression> {
        let enough = |one: &Suppression| one.up_to.is_none_or(|most| count <= most);
        self.0
            .iter()
            .find(|one| !one.is_expired(today) && enough(one) && one.covers(class, target, owner))
    }

    /// The first unexpired entry that names a rule or a line and silences this.
    #[must_use]
    pub fn find_entry(&self, query: &SuppressionQuery<'_>, today: Date) -> Option<&Suppression> {
        self.0.iter().find(|one| {
            (one.rule.is_some() || one.line.is_some())
                && !one.is_expired(today)
                && one.up_to.is_none_or(|most| query.count <= most)
                && one.covers_query(query)
        })
    }

    /// The expired entries, which are reported so that they are reviewed.
    pub fn expired(&self, today: Date) -> impl Iterator<Item = &Suppression> {
        self.0.iter().filter(move |one| one.is_expired(today))
    }

    /// Every entry.
    #[must_use]
    pub fn entries(&self) -> &[Suppression] {
        &self.0
    }
}

impl From<Vec<Suppression>> for Suppressions {
    fn from(entries: Vec<Suppression>) -> Self {
        Self(entries)
    }
}

/// The table as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    rule: Option<Spanned<String>>,
    line: Option<Spanned<String>>,
    class: Option<Spanned<String>>,
    target: Option<Spanned<String>>,
    owner: Option<Spanned<String>>,
    up_to: Option<u64>,
    reason: Spanned<String>,
    date: Spanned<toml::Value>,
    until: Option<Spanned<toml::Value>>,
}

pub(super) fn read(tables: Vec<Table>, place: FileText<'_>) -> Result<Suppressions, ConfigMistake> {
    let entries = tables.into_iter().map(|table| read_one(&table, place));
    entries.collect::<Result<_, _>>().map(Suppressions)
}

fn read_one(table: &Table, place: FileText<'_>) -> Result<Suppression, ConfigMistake> {
    let class = match &table.class {
        Some(text) => Some(
            text.get_ref()
                .parse()
                .map_err(|bad: BadClassPattern| place.mistake(text, "cleared.class", bad))?,
        ),
        None => None,
    };
    let glob = |text: &Option<Spanned<String>>, key: &str| match text {
        Some(text) if text.get_ref().is_empty() => {
            Err(place.mistake(text, key, "must not be empty"))
        }
        text => Ok(text
            .as_ref()
            .map(|text| Glob::from(text.get_ref().as_str()))),
    };
    let rule = rule(table, place)?;
    let line = match &table.line {
        Some(text) => {
            let line = text.get_ref().parse();
            Some(line.map_err(|bad: BadCodeLine| place.mistake(text, "cleared.line", bad))?)
        }
        None => None,
    };
    let target = glob(&table.target, "cleared.target")?;
    let owner = glob(&table.owner, "cleared.owner")?;
    let reason = &table.reason;
    if reason.get_ref().trim().is_empty() {
        return Err(place.mistake(
            reason,
            "cleared.reason",
            "must state why this is acceptable",
        ));
    }
    let is_bare = class.is_none() && target.is_none() && owner.is_none();
    if is_bare && rule.is_none() && line.is_none() {
        let message =
            "this entry would match everything: give a rule, line, class, target or owner";
        return Err(place.mistake(reason, "cleared", message));
    }
    let date = day(&table.date, "cleared.date", place)?;
    let until = match &table.until {
        Some(value) => {
            let until = day(value, "cleared.until", place)?;
            if until < date {
                return Err(place.mistake(value, "cleared.until", "must not be before date"));
            }
            Some(until)
        }
        None => None,
    };
    Ok(Suppression {
        rule,
        line,
        class,
        target,
        owner,
        up_to: table.up_to,
        reason: reason.get_ref().clone(),
        date,
        until,
    })
}

fn rule(table: &Table, place: FileText<'_>) -> Result<Option<String>, ConfigMistake> {
    let Some(text) = &table.rule else {
        return Ok(None);
    };
    if rule::is_suppressible(text.get_ref()) {
        return Ok(Some(text.get_ref().clone()));
    }
    let message = format!("unknown rule {:?}", text.get_ref());
    Err(place.mistake(text, "cleared.rule", message))
}

/// A day, with or without quotation marks; a time of day in it is refused.
fn day(
    value: &Spanned<toml::Value>,
    key: &str,
    place: FileText<'_>,
) -> Result<Date, ConfigMistake> {
    let written = match value.get_ref() {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Datetime(datetime) => Some(datetime.to_string()),
        _ => None,
    };
    written
        .filter(|text| text.len() == "2026-01-31".len())
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| place.mistake(value, key, "must be a date such as 2026-01-31"))
}
