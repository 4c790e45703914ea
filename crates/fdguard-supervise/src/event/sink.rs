//! Writes event lines to standard error without blocking.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::str::FromStr;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::LogEvent;
use crate::poll::{Interest, Readiness};

/// The format of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventFormat {
    /// `fdguard_event key=value …`.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl FromStr for EventFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("{text:?} is not one of text, json")),
        }
    }
}

/// The most lines that wait for a reader; older ones are dropped and counted.
const MOST: usize = 1_000;

/// Writes lines, and never blocks on a reader that does not read: such lines are queued, up to a
/// bounded number.
#[derive(Debug)]
pub struct EventSink {
    form: EventFormat,
    /// None if there is no reader.
    out: Option<OwnedFd>,
    waiting: VecDeque<Vec<u8>>,
    lost: u64,
}

impl EventSink {
    /// A sink that writes to this descriptor.
    #[must_use]
    pub fn new(form: EventFormat, out: Option<OwnedFd>) -> Self {
        Self {
            form,
            out,
            waiting: VecDeque::new(),
            lost: 0,
        }
    }

    /// Changes the format from now on.
    pub fn set_form(&mut self, form: EventFormat) {
        self.form = form;
    }

    /// Emits an event.
    pub fn emit(&mut self, event: &LogEvent) {
        let line = match self.form {
            EventFormat::Text => event.line(),
            EventFormat::Json => event.json(Timestamp::now()),
        };
        self.say(&line);
    }

    /// Writes a line as is.
    pub fn say(&mut self, line: &str) {
        if self.out.is_none() {
            return;
        }
        if self.waiting.len() == MOST {
            self.waiting.pop_front();
            self.lost += 1;
        }
        self.waiting.push_back(format!("{line}\n").into_bytes());
        self.flush();
    }

    /// Gives queued lines a moment to be written before the exit.
    pub fn finish(&mut self) {
        let until = Instant::now() + Duration::from_millis(200);
        while !self.waiting.is_empty() && Instant::now() < until {
            self.flush();
            if let Some(out) = self.out.as_ref().filter(|_| !self.waiting.is_empty()) {
                is_writable(out, Duration::from_millis(50));
            }
        }
    }

    /// Waits for the reader if lines are queued.
    pub fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        if let Some(out) = self.out.as_ref().filter(|_| !self.waiting.is_empty()) {
            wants.write(out.as_fd());
        }
    }

    /// Writes queued lines.
    pub fn poll(&mut self, ready: &Readiness) {
        if self.out.as_ref().is_some_and(|out| ready.has(out)) {
            self.flush();
        }
    }

    fn flush(&mut self) {
        while let (Some(out), Some(line)) = (&self.out, self.waiting.front_mut()) {
            // A pipe that poll reports as writable takes PIPE_BUF bytes without blocking; the rest
            // is written the next time.
            if !is_writable(out, Duration::ZERO) {
                return;
            }
            let piece = line.len().min(4096);
            match rustix::io::write(out, &line[..piece]) {
                Ok(written) if written == line.len() => drop(self.waiting.pop_front()),
                Ok(written) => drop(line.drain(..written)),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return,
                Err(_) => {
                    // There is no reader left.
                    self.out = None;
                    self.waiting.clear();
                }
            }
        }
        if self.waiting.is_empty() && self.lost > 0 {
            let lost = std::mem::take(&mut self.lost);
            self.emit(&LogEvent::new("lines_lost").with("count", lost));
        }
    }
}

fn is_writable(out: &OwnedFd, within: Duration) -> bool {
    let mut fds = [PollFd::new(out, PollFlags::OUT)];
    let within = Timespec::try_from(within).ok();
    let happened = poll(&mut fds, within.as_ref()).unwrap_or(0) > 0;
    happened && !fds[0].revents().is_empty()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::{EventFormat, EventSink, MOST};
    use crate::event::LogEvent;

    #[test]
    fn a_reader_that_does_not_read_loses_lines_and_is_told_how_many() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut sink = EventSink::new(EventFormat::Text, Some(write));
        let long = "x".repeat(200);
        for _ in 0..2_000 {
            sink.emit(&LogEvent::new("start").with("text", long.as_str()));
        }
        assert!(sink.lost > 0 && sink.waiting.len() == MOST);
        let mut read = std::fs::File::from(read);
        let mut all = Vec::new();
        let mut buffer = [0; 65_536];
        while !sink.waiting.is_empty() {
            let count = read.read(&mut buffer).unwrap();
            all.extend_from_slice(&buffer[..count]);
            sink.flush();
        }
        drop(sink);
        read.read_to_end(&mut all).unwrap();
        let text = String::from_utf8(all).unwrap();
        let lost = text.lines().last().unwrap();
        let lost: usize = lost
            .strip_prefix("fdguard_event event=lines_lost count=")
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(text.lines().count() - 1 + lost, 2_000);
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        drop(read);
        let mut sink = EventSink::new(EventFormat::Json, Some(write));
        sink.emit(&LogEvent::new("start"));
        sink.emit(&LogEvent::new("start"));
        assert!(sink.out.is_none());
    }
}
