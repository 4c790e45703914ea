//! Colours, in one place. Each accompanies a word or a mark, so that colour is never needed.

use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use ratatui::style::{Color, Modifier, Style};

/// The styles of the screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    colour: bool,
}

impl Theme {
    pub(super) fn new(colour: bool) -> Self {
        Self { colour }
    }

    pub(super) fn severity(&self, severity: Option<Severity>) -> Style {
        match severity {
            Some(Severity::Critical) => self.fg(Color::Red).add_modifier(Modifier::BOLD),
            Some(Severity::Warning) => self.fg(Color::Yellow),
            Some(Severity::Info) | None => Style::new(),
        }
    }

    pub(super) fn verdict(&self, verdict: Verdict) -> Style {
        match verdict {
            Verdict::Leaking => self.severity(Some(Severity::Critical)),
            Verdict::Growing => self.severity(Some(Severity::Warning)),
            Verdict::Bounded | Verdict::Stable => self.fg(Color::Green),
            Verdict::Unknown => self.quiet(),
        }
    }

    pub(super) fn title(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn heading(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
    }

    pub(super) fn sorted(&self) -> Style {
        self.heading().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn selected(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn key(&self) -> Style {
        self.fg(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub(super) fn quiet(&self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn gap(&self) -> Style {
        self.fg(Color::Yellow)
    }

    fn fg(&self, colour: Color) -> Style {
        if self.colour {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }
}
