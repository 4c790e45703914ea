//! One log line per sample, with stable keys and values.

use fdguard_core::diagnosis::ProcessDiagnosis;
use fdguard_core::watch::WatchedProcess;

use crate::cli::LineForm;
use crate::terminal::sanitize;

/// The line for one process.
#[must_use]
pub fn line(form: LineForm, subject: &WatchedProcess, opinion: &ProcessDiagnosis) -> String {
    match form {
        LineForm::Fdguard => fdguard(opinion),
        LineForm::Inxeption => inxeption(subject, opinion),
        LineForm::ResourceMonitor => format!("Resource monitor: open_fds={}", number(opinion.last)),
    }
}

/// Unknown is `unknown`, nothing is `none`: never an empty value, never an uncounted zero.
fn fdguard(opinion: &ProcessDiagnosis) -> String {
    let wall = |name: &str| opinion.walls.iter().find(|wall| wall.name == name);
    let percent = wall("soft-limit").and_then(|wall| wall.percent);
    let nearest = opinion
        .walls
        .iter()
        .filter(|wall| wall.only_if.is_none())
        .filter_map(|wall| Some((wall.name.as_str(), wall.eta_seconds?)))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    let rising = opinion.rising();
    format!(
        "fd_state pid={} comm={} count={} highest={} soft={} percent={} growing={} verdict={} wall={} eta_seconds={}",
        opinion.pid,
        word(&sanitize(&opinion.comm)),
        number(opinion.last),
        number(opinion.highest),
        number(opinion.limits.soft),
        percent.map_or_else(|| "unknown".to_owned(), |percent| format!("{percent:.1}")),
        if rising.is_empty() {
            "none".to_owned()
        } else {
            rising
                .iter()
                .map(|class| word(class))
                .collect::<Vec<_>>()
                .join(",")
        },
        super::diagnosis::word(opinion.verdict),
        nearest.map_or("none", |(name, _)| name),
        nearest.map_or_else(|| "none".to_owned(), |(_, eta)| format!("{eta:.0}")),
    )
}

/// The line format of a system that logs its own table; -1 means unknown there.
fn inxeption(subject: &WatchedProcess, opinion: &ProcessDiagnosis) -> String {
    let or_unknown = |value: Option<u64>| value.map_or_else(|| "-1".to_owned(), |n| n.to_string());
    let lowest = subject.timeline.live().iter().next().map(|(fd, _)| fd);
    let range = match (lowest, opinion.highest) {
        (Some(lowest), Some(highest)) => format!("{lowest}-{highest}"),
        _ => "-1".to_owned(),
    };
    format!(
        "FD_STATE[watch]: count={}, range={range}, limit={}",
        or_unknown(opinion.last),
        or_unknown(opinion.limits.soft),
    )
}

pub(super) fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
}

/// A value without blanks or equal signs, so that the line can be split at blanks.
#[must_use]
pub fn word(text: &str) -> String {
    let clean = |c: char| {
        if c.is_whitespace() || c == '=' {
            '_'
        } else {
            c
        }
    };
    text.chars().map(clean).collect()
}

#[cfg(test)]
mod tests {
    use fdguard_core::config::Config;
    use fdguard_core::playbook::Playbook;
    use fdguard_core::recording::{Appearance, RecordingEntry, RecordingHeader};
    use fdguard_core::rule::RuleSettings;
    use fdguard_core::watch::Watch;
    use jiff::Timestamp;

    use super::{LineForm, line};

    /// The line of a process of which only the name is known.
    fn blind(form: LineForm, name: &str) -> String {
        let process = serde_json::json!({"pid": 7, "comm": name, "cmdline": [], "cohorts": []});
        let mut watch = Watch::new(RecordingHeader::new(Timestamp::UNIX_EPOCH, 1.0));
        watch.record(&RecordingEntry::Process(Box::new(Appearance {
            id: 0,
            at: 0.0,
            process: serde_json::from_value(process).unwrap(),
            tier: fdguard_core::Tier::Radar,
            select: None,
            successor_of: None,
        })));
        let config = Config::default();
        let settings = RuleSettings {
            levels: config.levels,
            expectations: config.expectations,
            suppressions: config.suppressions,
            playbook: Playbook::embedded(),
            today: jiff::civil::date(2026, 1, 1),
        };
        let subject = watch.subjects().next().unwrap();
        line(form, subject, &subject.opinion(&settings))
    }

    #[test]
    fn r60_unknown_is_never_a_zero_in_any_form() {
        assert_eq!(
            blind(LineForm::Fdguard, "worker"),
            "fd_state pid=7 comm=worker count=unknown highest=unknown soft=unknown percent=unknown \
             growing=none verdict=unknown wall=none eta_seconds=none"
        );
        let other = "FD_STATE[watch]: count=-1, range=-1, limit=-1";
        assert_eq!(blind(LineForm::Inxeption, "worker"), other);
        let other = "Resource monitor: open_fds=unknown";
        assert_eq!(blind(LineForm::ResourceMonitor, "worker"), other);
    }

    #[test]
    fn r60_a_name_cannot_forge_a_key_or_a_line() {
        let line = blind(LineForm::Fdguard, "a count=1\nfd_state \u{1b}[2J");
        assert_eq!(line.split(' ').count(), 11, "{line}");
        assert_eq!(line.matches(" count=").count(), 1, "{line}");
        assert!(!line.contains(['\n', '\u{1b}']), "{line:?}");
    }
}
