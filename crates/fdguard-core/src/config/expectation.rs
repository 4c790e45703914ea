//! `[[expect]]`: how many descriptors a number of units of work should need.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use toml::Spanned;

use super::ClassPattern;
use crate::Class;
use crate::count::as_f64;
use crate::glob::Glob;
use crate::located::{ConfigMistake, FileText};

/// How much more than expected is a breach, unless the user sets another factor.
const FACTOR: f64 = 2.0;

/// A number of units that need a number of descriptors each. On the command line
/// `NAME=UNITS*PER[@CLASS][:xFACTOR]`:
///
/// ```
/// use fdguard_core::config::Expectation;
///
/// let all: Expectation = "sessions=25*3".parse().unwrap();
/// assert_eq!(all.limit(), 75);
/// assert!(!all.breached_by(150) && all.breached_by(151));
///
/// let databases: Expectation = "sessions=25*3@sqlite-*:x1.5".parse().unwrap();
/// assert!(databases.breached_by(113));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// What the units are, such as `sessions`.
    pub name: String,
    /// How many there are at most.
    pub units: u64,
    /// How many descriptors each needs.
    pub per_unit: u64,
    /// Which class of descriptors to count; absent: every class.
    pub class: Option<ClassPattern>,
    /// Which targets to count; absent: all.
    pub target: Option<Glob>,
    /// A breach is more than this many times the limit.
    pub factor: f64,
}

impl Expectation {
    /// The descriptors that all units together should need.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.units.saturating_mul(self.per_unit)
    }

    /// Whether this many are more than the work explains.
    #[must_use]
    pub fn breached_by(&self, observed: u64) -> bool {
        as_f64(observed) > self.factor * as_f64(self.limit())
    }

    /// Whether a descriptor of this class on this target is counted.
    #[must_use]
    pub fn counts(&self, class: &Class, target: &[u8]) -> bool {
        let class_fits = self.class.as_ref().is_none_or(|one| one.matches(class));
        class_fits && self.target.as_ref().is_none_or(|one| one.matches(target))
    }
}

/// Why an expectation cannot be read, or makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadExpectation {
    /// The part that is wrong, by its key in the file.
    key: &'static str,
    message: String,
}

impl BadExpectation {
    fn new(key: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { key, message }
    }
}

impl fmt::Display for BadExpectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BadExpectation {}

impl FromStr for Expectation {
    type Err = BadExpectation;

    fn from_str(text: &str) -> Result<Self, BadExpectation> {
        let form = || {
            let message = format!("{text:?} is not NAME=UNITS*PER[@CLASS][:xFACTOR]");
            BadExpectation::new("name", format!("{message}, such as sessions=25*3"))
        };
        let (name, rest) = text.split_once('=').ok_or_else(form)?;
        let (rest, factor) = split_factor(rest);
        let (product, class) = match rest.split_once('@') {
            Some((product, class)) => (product, Some(class)),
            None => (rest, None),
        };
        let (units, per_unit) = product.split_once('*').ok_or_else(form)?;
        let class = class.map(|class| {
            let class = class.parse::<ClassPattern>();
            class.map_err(|bad| BadExpectation::new("class", bad.to_string()))
        });
        let factor = factor.map(|factor| {
            let bad = |_| BadExpectation::new("factor", format!("{factor:?} is not a number"));
            factor.parse::<f64>().map_err(bad)
        });
        let expectation = Self {
            name: name.to_owned(),
            units: whole("units", units)?,
            per_unit: whole("per_unit", per_unit)?,
            class: class.transpose()?,
            target: None,
            factor: factor.transpose()?.unwrap_or(FACTOR),
        };
        expectation.checked()
    }
}

/// Takes `:xFACTOR` off the end. Class names have colons too, so a digit must follow the x.
fn split_factor(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(":x") {
        Some((rest, factor)) if factor.starts_with(|c: char| c.is_ascii_digit()) => {
            (rest, Some(factor))
        }
        _ => (text, None),
    }
}

fn whole(key: &'static str, text: &str) -> Result<u64, BadExpectation> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let large = |_| BadExpectation::new(key, format!("{text} is too large"));
        text.parse().map_err(large)
    } else {
        let message = format!("{text:?} is not a whole number");
        Err(BadExpectation::new(key, message))
    }
}

impl Expectation {
    fn checked(self) -> Result<Self, BadExpectation> {
        let bad = |key, message: &str| Err(BadExpectation::new(key, message));
        if self.name.is_empty() {
            return bad("name", "an expectation needs a name");
        }
        if self.name.contains('=') || self.name.contains(char::is_control) {
            return bad("name", "a name must not contain = or control characters");
        }
        if self.units == 0 {
            return bad("units", "the number of units must be at least 1");
        }
        if self.per_unit == 0 {
            return bad("per_unit", "descriptors per unit must be at least 1");
        }
        if self.units.checked_mul(self.per_unit).is_none() {
            return bad("units", "units times descriptors per unit is too large");
        }
        if !self.factor.is_finite() || self.factor < 1.0 {
            return bad("factor", "the factor must be at least 1");
        }
        Ok(self)
    }
}

/// The table as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    name: Spanned<String>,
    units: Spanned<u64>,
    per_unit: Spanned<u64>,
    class: Option<Spanned<String>>,
    target: Option<Spanned<String>>,
    factor: Option<Spanned<f64>>,
}

pub(super) fn read(
    tables: Vec<Table>,
    place: FileText<'_>,
) -> Result<Vec<Expectation>, ConfigMistake> {
    let mut all: Vec<Expectation> = Vec::with_capacity(tables.len());
    for table in tables {
        if all.iter().any(|one| one.name == *table.name.get_ref()) {
            let message = "duplicate expectation name";
            return Err(place.mistake(&table.name, "expect.name", message));
        }
        all.push(read_one(&table, place)?);
    }
    Ok(all)
}

fn read_one(table: &Table, place: FileText<'_>) -> Result<Expectation, ConfigMistake> {
    let class = match &table.class {
        Some(text) => Some(
            text.get_ref()
                .parse()
                .map_err(|bad: super::BadClassPattern| place.mistake(text, "expect.class", bad))?,
        ),
        None => None,
    };
    let expectation = Expectation {
        name: table.name.get_ref().clone(),
        units: *table.units.get_ref(),
        per_unit: *table.per_unit.get_ref(),
        class,
        target: table
            .target
            .as_ref()
            .map(|one| Glob::from(one.get_ref().as_str())),
        factor: table.factor.as_ref().map_or(FACTOR, |one| *one.get_ref()),
    };
    expectation.checked().map_err(|bad| {
        let key = format!("expect.{}", bad.key);
        match (bad.key, &table.factor) {
            ("units", _) => place.mistake(&table.units, &key, bad),
            ("per_unit", _) => place.mistake(&table.per_unit, &key, bad),
            ("factor", Some(factor)) => place.mistake(factor, &key, bad),
            _ => place.mistake(&table.name, &key, bad),
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Expectation;
    use crate::{Class, TcpState};

    fn said(text: &str) -> String {
        text.parse::<Expectation>().unwrap_err().to_string()
    }

    #[test]
    fn r12_more_than_twice_what_the_units_need_is_a_breach() {
        let expectation: Expectation = "sessions=25*3".parse().unwrap();
        assert_eq!(expectation.limit(), 75);
        assert!(!expectation.breached_by(150));
        assert!(expectation.breached_by(151));
        assert!(expectation.counts(&Class::Pipe, b""));
    }

    #[test]
    fn class_and_factor_may_follow_in_this_order() {
        let close_wait = Class::Tcp(TcpState::CloseWait);
        let both: Expectation = "users=10*2@tcp:*:x1.5".parse().unwrap();
        assert!(both.breached_by(31) && !both.breached_by(30));
        assert!(both.counts(&close_wait, b"") && !both.counts(&Class::Udp, b""));
        let class: Expectation = "users=10*2@tcp:CLOSE_WAIT".parse().unwrap();
        assert!(class.counts(&close_wait, b""));
        let factor: Expectation = "users=10*2:x3".parse().unwrap();
        assert!((factor.factor - 3.0).abs() < f64::EPSILON && factor.class.is_none());
        let odd: Expectation = "a=1*1@other:xattr".parse().unwrap();
        assert!(odd.counts(&Class::Other("xattr".into()), b""));
    }

    #[test]
    fn a_form_that_cannot_be_read_is_told_on_one_line() {
        let form = "is not NAME=UNITS*PER[@CLASS][:xFACTOR], such as sessions=25*3";
        assert_eq!(said("sessions=25"), format!("\"sessions=25\" {form}"));
        assert_eq!(said("sessions"), format!("\"sessions\" {form}"));
        assert_eq!(said("=3*3"), "an expectation needs a name");
        assert_eq!(said("a=0*3"), "the number of units must be at least 1");
        assert_eq!(said("a=3*0"), "descriptors per unit must be at least 1");
        assert_eq!(said("a=x*3"), "\"x\" is not a whole number");
        assert_eq!(said("a=-1*3"), "\"-1\" is not a whole number");
        assert_eq!(said("a=3*"), "\"\" is not a whole number");
        assert_eq!(said("a=3*3:x0.5"), "the factor must be at least 1");
        assert_eq!(said("a=3*3:x1.2.3"), "\"1.2.3\" is not a number");
        assert_eq!(said("a=3*3@nope"), "unknown descriptor class \"nope\"");
        let large = "99999999999999999999";
        assert_eq!(
            said(&format!("a={large}*3")),
            format!("{large} is too large")
        );
        let product = format!("a={}*2", u64::MAX);
        assert_eq!(
            said(&product),
            "units times descriptors per unit is too large"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_survived_and_errors_are_one_line(text: String) {
            if let Err(error) = text.parse::<Expectation>() {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }

        #[test]
        fn what_is_written_is_read(units in 1u64..1_000_000, per in 1u64..1_000) {
            let found: Expectation = format!("n={units}*{per}").parse().unwrap();
            prop_assert_eq!((found.units, found.per_unit, found.limit()), (units, per, units * per));
        }
    }
}
