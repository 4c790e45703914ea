//! The terminal view of `trace`: the sites that grow now.
//!
//! [`TraceViewState`] is what the user chose; [`draw`] shows it with the rows of the last look,
//! [`run`] is the loop around both. The caller supplies the looks, through [`SiteFeed`].

mod draw;
mod run;
mod screen;
mod state;

#[cfg(test)]
mod tests;

pub use draw::draw;
pub use run::{DrawTarget, SiteFeed, TraceViewOutcome, has_terminal, run};
pub use state::TraceViewState;

/// A site as displayed; every text is safe for a terminal.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteRow {
    /// The process.
    pub pid: u32,
    /// Its command.
    pub comm: String,
    /// How many are open.
    pub live: usize,
    /// Growth per second, over the last seconds.
    pub rate: Option<f64>,
    /// Whether it has been growing for a while.
    pub is_growing: bool,
    /// How many were opened, and how many of them closed.
    pub opened: u64,
    /// How many of them were closed.
    pub closed: u64,
    /// How long the oldest has been open, in seconds.
    pub oldest: f64,
    /// The most frequent class.
    pub class: String,
    /// Their target, if all have the same.
    pub target: Option<String>,
    /// `main.c:23 begin`.
    pub line: String,
    /// The stack, the innermost frame first.
    pub stack: Vec<String>,
}

impl SiteRow {
    /// Whether it is the same site as at an earlier look.
    fn is_same(&self, (pid, line): &(u32, String)) -> bool {
        self.pid == *pid && self.line == *line
    }
}

/// The line above the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceHeadline {
    /// The program's name.
    pub name: String,
    /// Its pid.
    pub pid: u32,
    /// How many processes run.
    pub processes: usize,
    /// How many descriptors they hold; `None` if they could not be listed.
    pub descriptors: Option<u64>,
}
