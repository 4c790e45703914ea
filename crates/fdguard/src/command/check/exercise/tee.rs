//! The server's output: passed on unchanged, searched for a line, with its last part kept.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regex::bytes::Regex;

/// How many bytes of the output are kept.
const REMEMBERED: usize = 4096;
/// Longer lines are searched in pieces.
const LONGEST_LINE: usize = 1 << 16;
/// How long the last output may take to arrive after the server has ended.
const PATIENCE: Duration = Duration::from_millis(500);

/// Both outputs of a server.
#[derive(Debug)]
pub(super) struct Tee {
    last: Arc<Mutex<VecDeque<u8>>>,
    matched: Receiver<()>,
    ended: Receiver<()>,
    open: usize,
}

impl Tee {
    /// Starts to pass these streams on.
    pub(super) fn start(
        streams: Vec<(Box<dyn Read + Send>, Box<dyn Write + Send>)>,
        line: Option<&Regex>,
    ) -> io::Result<Self> {
        let (tell_match, matched) = mpsc::channel();
        let (tell_end, ended) = mpsc::channel();
        let last = Arc::new(Mutex::new(VecDeque::new()));
        let open = streams.len();
        for (from, to) in streams {
            let pass = Pass {
                to,
                last: Arc::clone(&last),
                line: line.cloned(),
                matched: tell_match.clone(),
                partial: Vec::new(),
            };
            let tell_end = tell_end.clone();
            std::thread::Builder::new().spawn(move || {
                pass.run(from);
                // An error means that the receiver is gone.
                let _ = tell_end.send(());
            })?;
        }
        Ok(Self {
            last,
            matched,
            ended,
            open,
        })
    }

    /// Whether a line matched, waiting at most this long.
    pub(super) fn has_matched(&self, within: Duration) -> bool {
        self.matched.recv_timeout(within).is_ok()
    }

    /// Waits briefly for the remaining output after the server has ended, but not for other
    /// processes that still hold a pipe.
    pub(super) fn finish(&mut self) {
        while self.open > 0 && self.ended.recv_timeout(PATIENCE).is_ok() {
            self.open -= 1;
        }
    }

    /// The last lines.
    pub(super) fn last(&self) -> Vec<u8> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().copied().collect()
    }
}

struct Pass {
    to: Box<dyn Write + Send>,
    last: Arc<Mutex<VecDeque<u8>>>,
    line: Option<Regex>,
    matched: Sender<()>,
    partial: Vec<u8>,
}

impl Pass {
    fn run(mut self, mut from: Box<dyn Read + Send>) {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let bytes = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => buffer.get(..count).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            // A failed write means that fdguard's own output is closed; the server continues.
            let written = self.to.write_all(bytes);
            drop(written.and_then(|()| self.to.flush()));
            self.remember(bytes);
            self.look_for_line(bytes);
        }
        let rest = std::mem::take(&mut self.partial);
        self.look_at(&rest);
    }

    fn remember(&self, bytes: &[u8]) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.extend(bytes);
        let surplus = last.len().saturating_sub(REMEMBERED);
        last.drain(..surplus);
    }

    fn look_for_line(&mut self, bytes: &[u8]) {
        if self.line.is_none() {
            return;
        }
        for byte in bytes {
            if *byte == b'\n' || self.partial.len() >= LONGEST_LINE {
                let line = std::mem::take(&mut self.partial);
                self.look_at(&line);
            }
            if *byte != b'\n' {
                self.partial.push(*byte);
            }
        }
    }

    fn look_at(&self, line: &[u8]) {
        if self
            .line
            .as_ref()
            .is_some_and(|wanted| wanted.is_match(line))
        {
            // An error means that the receiver is gone.
            let _ = self.matched.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use regex::bytes::Regex;

    use super::Tee;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn passed(input: &[u8], wanted: &str) -> (Vec<u8>, bool, Vec<u8>) {
        let sink = Sink::default();
        let from: Box<dyn Read + Send> = Box::new(std::io::Cursor::new(input.to_vec()));
        let regex = Regex::new(wanted).unwrap();
        let streams: Vec<(_, Box<dyn Write + Send>)> = vec![(from, Box::new(sink.clone()))];
        let mut tee = Tee::start(streams, Some(&regex)).unwrap();
        tee.finish();
        let matched = tee.has_matched(Duration::ZERO);
        (sink.0.lock().unwrap().clone(), matched, tee.last())
    }

    #[test]
    fn everything_is_passed_on_and_a_line_is_found() {
        let text = b"starting\n\xff\x00 binary\nlistening on 80\nmore";
        let (out, matched, last) = passed(text, "^listening on \\d+$");
        assert_eq!((out.as_slice(), matched), (&text[..], true));
        assert_eq!(last, text);
        assert!(!passed(text, "^never$").1);
        assert!(passed(text, "^more$").1, "a last line without its end");
    }

    #[test]
    fn only_the_end_is_remembered() {
        let long = vec![b'x'; 10_000];
        assert_eq!(passed(&long, "y").2.len(), 4096);
    }
}
