//! Colours by meaning. The word is always printed, so that colour is never the only sign.

use anstyle::{AnsiColor, Style};
use fdguard_core::lint::Severity;
use fdguard_core::wall;

/// Headings.
pub const HEADING: Style = Style::new().bold();
/// For less important text.
pub const DIM: Style = Style::new().dimmed();
/// A problem ahead.
pub const WARNING: Style = AnsiColor::Yellow.on_default();
/// A problem now.
pub const CRITICAL: Style = AnsiColor::Red.on_default().bold();
/// New.
pub const ADDED: Style = AnsiColor::Green.on_default();
/// Gone.
pub const REMOVED: Style = AnsiColor::Red.on_default();

/// The colour and the word of a severity.
#[must_use]
pub fn severity(severity: Severity) -> (Style, &'static str) {
    match severity {
        Severity::Info => (DIM, "info"),
        Severity::Warning => (WARNING, "warning"),
        Severity::Critical => (CRITICAL, "critical"),
    }
}

/// The colour of a percentage of a limit, by the default levels.
#[must_use]
pub fn share(percent: f64) -> Style {
    if percent >= wall::CRITICAL_FROM {
        CRITICAL
    } else if percent >= wall::WARNING_ABOVE {
        WARNING
    } else {
        Style::new()
    }
}

/// Text in a style, for `format!`.
#[must_use]
pub fn paint(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}
