//! One line on stderr during slow work: what is being done, how far it is, what it looks like so
//! far.
//!
//! It appears only on a terminal, after a moment, and disappears before the result is printed.
//! Output of another program must be passed through [`ProgressLine::around`], so that neither
//! spoils the other.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fdguard_core::judge::Verdict;
use fdguard_core::rule::RuleSettings;
use fdguard_core::units;
use fdguard_core::watch::Watch;
use unicode_width::UnicodeWidthChar as _;

use crate::report::diagnosis::word;
use crate::terminal::sanitize;

/// Work that is done by then needs no line.
const QUIET: Duration = Duration::from_secs(1);
/// The interval between updates.
const EVERY: Duration = Duration::from_millis(250);
/// How many processes are judged for a line; judging all of a large tree would cost too much.
const JUDGED: usize = 8;

/// The progress line. Drop erases it.
#[derive(Debug)]
pub struct ProgressLine(Option<Arc<Mutex<Line>>>);

#[derive(Debug)]
struct Line {
    began: Instant,
    drawn: Option<Instant>,
    is_shown: bool,
    /// Whether other output ended with a newline; only then the progress line can be drawn.
    is_free: bool,
    is_over: bool,
}

impl ProgressLine {
    /// A line, if stderr is a terminal that can erase one.
    #[must_use]
    pub fn on_stderr() -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if is_dumb || !io::stderr().is_terminal() {
            return Self::hidden();
        }
        Self(Some(Arc::new(Mutex::new(Line {
            began: Instant::now(),
            drawn: None,
            is_shown: false,
            is_free: true,
            is_over: false,
        }))))
    }

    /// No progress line, because another writer uses the terminal.
    #[must_use]
    pub fn hidden() -> Self {
        Self(None)
    }

    /// Replaces the line with this text, which is computed only if an update is scheduled.
    pub fn show(&self, text: impl FnOnce() -> String) {
        let Some(mut line) = self.0.as_ref().map(locked) else {
            return;
        };
        let now = Instant::now();
        if !line.is_due(now) {
            return;
        }
        line.drawn = Some(now);
        line.is_shown = true;
        let text = cut(&text(), columns());
        // Ignore a terminal that is gone.
        drop(write!(io::stderr(), "\r\u{1b}[K{text}"));
    }

    /// Erases the line; the next `show` draws it again.
    pub fn clear(&self) {
        if let Some(mut line) = self.0.as_ref().map(locked) {
            line.erase();
        }
    }

    /// Wraps another writer of the terminal; the progress line is erased before its output.
    pub fn around<W: Write>(&self, to: W) -> Around<W> {
        Around {
            line: self.0.clone(),
            to,
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some(mut line) = self.0.as_ref().map(locked) {
            line.erase();
            line.is_over = true;
        }
    }
}

impl Line {
    fn is_due(&self, now: Instant) -> bool {
        let since = self.drawn.map(|drawn| now.duration_since(drawn));
        self.is_free
            && !self.is_over
            && now.duration_since(self.began) >= QUIET
            && since.is_none_or(|since| since >= EVERY)
    }

    fn erase(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            drop(write!(io::stderr(), "\r\u{1b}[K"));
        }
    }
}

fn locked(line: &Arc<Mutex<Line>>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A writer that erases the progress line while it writes.
#[derive(Debug)]
pub struct Around<W> {
    line: Option<Arc<Mutex<Line>>>,
    to: W,
}

impl<W: Write> Write for Around<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(mut line) = self.line.as_ref().map(locked) else {
            return self.to.write(bytes);
        };
        line.erase();
        let count = self.to.write(bytes)?;
        if let Some(last) = bytes.get(..count).and_then(<[u8]>::last) {
            line.is_free = *last == b'\n';
        }
        // The progress line must not overtake this output.
        self.to.flush()?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// `watching python3 (pid 42): 7 s of 15 s, 59 descriptors (+47), leaking so far`.
#[must_use]
pub fn of_watch(watch: &Watch, settings: &RuleSettings, length: Option<Duration>) -> String {
    let Some(first) = watch.subjects().next() else {
        return "watching: no process found".to_owned();
    };
    let others = watch.subjects().count().saturating_sub(1);
    let others = match others {
        0 => String::new(),
        many => format!(" and {}", units::counted(many, "other")),
    };
    let process = &first.process;
    let mut text = format!(
        "watching {} (pid {}){others}",
        sanitize(&process.comm),
        process.pid
    );
    text.push_str(&format!(": {}", of_time(watch.at(), length)));
    if let Some(count) = first.timeline.count() {
        text.push_str(&format!(", {count} descriptors"));
        let grown = first
            .timeline
            .baseline()
            .map(|before| count.cast_signed() - before.cast_signed());
        if let Some(grown) = grown.filter(|grown| *grown != 0) {
            text.push_str(&format!(" ({grown:+})"));
        }
    }
    let judged = watch.subjects().take(JUDGED);
    let verdict = judged
        .map(|subject| subject.opinion(settings).verdict)
        .max();
    if let Some(verdict) = verdict.filter(|verdict| *verdict != Verdict::Unknown) {
        text.push_str(&format!(", {} so far", word(verdict)));
    }
    text
}

/// `7 s of 15 s`.
#[must_use]
pub fn of_time(elapsed: f64, total: Option<Duration>) -> String {
    let elapsed = units::duration(elapsed);
    match total {
        Some(total) => format!("{elapsed} of {}", units::duration(total.as_secs_f64())),
        None => elapsed,
    }
}

/// The part that fits into one row: a wrapped line cannot be erased.
fn cut(text: &str, columns: usize) -> String {
    let room = columns.saturating_sub(1);
    let mut width = 0;
    let fits = |character: &char| {
        width += character.width().unwrap_or(0);
        width <= room
    };
    text.chars().take_while(fits).collect()
}

/// Columns of the terminal on stderr.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stderr());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { 80 } else { columns }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use super::{ProgressLine, cut, of_time};

    #[test]
    fn a_line_never_wraps() {
        assert_eq!(cut("abcdef", 4), "abc");
        assert_eq!(cut("日本語", 5), "日本");
        assert_eq!(cut("abc", 0), "");
    }

    #[test]
    fn how_far_it_is() {
        assert_eq!(of_time(7.2, Some(Duration::from_secs(15))), "7 s of 15 s");
        assert_eq!(of_time(180.0, None), "3.0 min");
    }

    #[test]
    fn nothing_is_made_for_nobody() {
        let progress = ProgressLine::hidden();
        progress.show(|| unreachable!("nobody sees it"));
        let mut out = Vec::new();
        progress.around(&mut out).write_all(b"passed on").unwrap();
        assert_eq!(out, b"passed on");
    }
}
