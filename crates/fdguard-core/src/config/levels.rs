//! `[levels]`: the share of a limit, or the count, that is too much.

use serde::Deserialize;
use toml::Spanned;

use crate::lint::Severity;
use crate::located::{ConfigMistake, FileText};
use crate::wall::{CRITICAL_FROM, WARNING_ABOVE};

/// The levels at which to alert an operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Levels {
    /// Warn above this share of a limit, in percent.
    pub warning: f64,
    /// Critical from this share of a limit on, in percent.
    pub critical: f64,
    /// Warn above this many descriptors, whatever the limits are; absent: no such level.
    pub absolute: Option<u64>,
}

impl Default for Levels {
    fn default() -> Self {
        Self {
            warning: WARNING_ABOVE,
            critical: CRITICAL_FROM,
            absolute: None,
        }
    }
}

impl Levels {
    /// The severity of this share of a limit, in percent, and of this count; `None` if neither is
    /// known to be too much.
    #[must_use]
    pub fn judge(&self, percent: Option<f64>, count: Option<u64>) -> Option<Severity> {
        let many = count.zip(self.absolute);
        if percent.is_some_and(|percent| percent >= self.critical) {
            Some(Severity::Critical)
        } else if percent.is_some_and(|percent| percent > self.warning)
            || many.is_some_and(|(count, most)| count > most)
        {
            Some(Severity::Warning)
        } else {
            None
        }
    }
}

/// The table as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    warning: Option<Spanned<f64>>,
    critical: Option<Spanned<f64>>,
    absolute: Option<Spanned<u64>>,
}

/// `0 < warning <= critical <= 100`, with the default for what is omitted.
pub(super) fn read(table: Table, place: FileText<'_>) -> Result<Levels, ConfigMistake> {
    let percent = |value: Option<&Spanned<f64>>, key: &str, default: f64| match value {
        None => Ok(default),
        Some(value) if *value.get_ref() > 0.0 && *value.get_ref() <= 100.0 => Ok(*value.get_ref()),
        Some(value) => Err(place.mistake(value, key, "must be above 0 and at most 100")),
    };
    let warning = percent(table.warning.as_ref(), "levels.warning", WARNING_ABOVE)?;
    let critical = percent(table.critical.as_ref(), "levels.critical", CRITICAL_FROM)?;
    if warning > critical {
        let message =
            format!("the warning level {warning} must not exceed the critical level {critical}");
        let written = [
            (&table.warning, "levels.warning"),
            (&table.critical, "levels.critical"),
        ];
        // At least one of them is written: the defaults are in order.
        for (value, key) in written {
            if let Some(value) = value {
                return Err(place.mistake(value, key, message));
            }
        }
    }
    if let Some(absolute) = table
        .absolute
        .as_ref()
        .filter(|level| *level.get_ref() == 0)
    {
        return Err(place.mistake(absolute, "levels.absolute", "must be at least 1"));
    }
    Ok(Levels {
        warning,
        critical,
        absolute: table.absolute.map(Spanned::into_inner),
    })
}

#[cfg(test)]
mod tests {
    use super::Levels;
    use crate::lint::Severity;

    #[test]
    fn r12_warning_above_70_critical_from_90_and_no_absolute_level_by_default() {
        let levels = Levels::default();
        assert_eq!(levels.judge(Some(70.0), Some(1_000_000)), None);
        assert_eq!(levels.judge(Some(70.1), None), Some(Severity::Warning));
        assert_eq!(levels.judge(Some(89.9), None), Some(Severity::Warning));
        assert_eq!(levels.judge(Some(90.0), None), Some(Severity::Critical));
        assert_eq!(levels.judge(None, None), None);
    }

    #[test]
    fn r12_an_absolute_level_warns_however_far_the_limit_is() {
        let levels = Levels {
            absolute: Some(800),
            ..Levels::default()
        };
        assert_eq!(levels.judge(Some(1.0), Some(800)), None);
        assert_eq!(levels.judge(None, Some(801)), Some(Severity::Warning));
        let both = levels.judge(Some(95.0), Some(801));
        assert_eq!(both, Some(Severity::Critical));
    }
}
