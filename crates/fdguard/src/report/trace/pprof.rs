//! A profile for `pprof` and compatible tools: the message `perftools.profiles.Profile`, to be
//! compressed with gzip.
//!
//! The class is known for open descriptors, not for closed ones. So a stack has one sample for each
//! class that is open, and one without a class for everything else it opened.

use std::collections::HashMap;
use std::io::Write as _;

use fdguard_core::Class;
use fdguard_core::origin::Frame;
use fdguard_diagnose::trace::{ProcessSites, TraceReport};
use fdguard_trace::CallPath;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::name;
use super::protobuf::Message;
use crate::report::table::class_name;
use crate::terminal::{sanitize, sanitize_str};

/// Fields of `Profile`.
mod profile {
    pub(super) const SAMPLE_TYPE: u64 = 1;
    pub(super) const SAMPLE: u64 = 2;
    pub(super) const MAPPING: u64 = 3;
    pub(super) const LOCATION: u64 = 4;
    pub(super) const FUNCTION: u64 = 5;
    pub(super) const STRING: u64 = 6;
    pub(super) const TIME_NANOS: u64 = 9;
    pub(super) const DURATION_NANOS: u64 = 10;
    pub(super) const PERIOD_TYPE: u64 = 11;
    pub(super) const PERIOD: u64 = 12;
    pub(super) const COMMENT: u64 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u64 = 14;
}

/// The values of a sample, in order.
const TYPES: [&str; 3] = ["open_descriptors", "opened", "closed"];
const UNIT: &str = "count";

/// The file.
pub fn file(report: &TraceReport) -> std::io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&message(report))?;
    gzip.finish()
}

/// The message.
#[must_use]
pub fn message(report: &TraceReport) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.describe(report);
    for process in &report.processes {
        let closed = report.closed_paths(process.pid);
        let open = process.sites.iter().flat_map(|site| &site.paths);
        for path in open.chain(&closed) {
            writer.call_path(process, path);
        }
    }
    writer.finish()
}

/// Indices of texts, places and modules are assigned in order from 1; 0 means none.
struct Writer {
    out: Message,
    texts: HashMap<String, u64>,
    /// Ordered by index.
    text_list: Vec<String>,
    mappings: HashMap<u64, u64>,
    functions: HashMap<(u64, u64), u64>,
    locations: HashMap<Frame, u64>,
    samples: Vec<(Sample, [u64; 3])>,
    sample_at: HashMap<Sample, usize>,
}

/// The key of a sample: a stack of locations, and labels as indices of their texts.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Sample {
    stack: Vec<u64>,
    texts: Vec<(u64, u64)>,
    pid: (u64, u32),
}

impl Writer {
    fn new() -> Self {
        let mut writer = Self {
            out: Message::default(),
            texts: HashMap::new(),
            text_list: Vec::new(),
            mappings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
            samples: Vec::new(),
            sample_at: HashMap::new(),
        };
        // The specification requires the empty text first.
        writer.text("");
        writer
    }

    fn describe(&mut self, report: &TraceReport) {
        let unit = self.text(UNIT);
        let types = TYPES.map(|name| self.text(name));
        let kind = |kind: u64| {
            move |out: &mut Message| {
                out.number(1, kind);
                out.number(2, unit);
            }
        };
        for name in types {
            self.out.message(profile::SAMPLE_TYPE, kind(name));
        }
        let [open, ..] = types;
        self.out.message(profile::PERIOD_TYPE, kind(open));
        self.out.number(profile::PERIOD, 1);
        self.out.number(profile::DEFAULT_SAMPLE_TYPE, open);
        let (began, ended) = (report.diagnosis.started_at, report.diagnosis.ended_at);
        let nanos = |nanos: i128| u64::try_from(nanos).unwrap_or(0);
        let length = ended.as_nanosecond() - began.as_nanosecond();
        let began = nanos(began.as_nanosecond());
        self.out.number(profile::TIME_NANOS, began);
        self.out.number(profile::DURATION_NANOS, nanos(length));
        let words = report.diagnosis.process.cmdline.iter().map(sanitize);
        let words: Vec<String> = words.collect();
        // Readers take the first module as the program.
        if let Some(exe) = &report.diagnosis.process.exe {
            self.mapping(&sanitize(exe));
        }
        let comment = self.text(&format!("fdguard trace -- {}", words.join(" ")));
        self.out.numbers(profile::COMMENT, &[comment]);
    }

    fn call_path(&mut self, process: &ProcessSites, path: &CallPath) {
        let stack: Vec<u64> = match path.stack.as_slice() {
            [] => vec![self.lost()],
            frames => frames.iter().map(|frame| self.location(frame)).collect(),
        };
        for (class, live) in process.classes(path) {
            let sample = self.labelled(process, &stack, class);
            self.sample(sample, [live, live, 0]);
        }
        let gone = path.opened.saturating_sub(path.fds.len() as u64);
        if gone > 0 || path.closed > 0 {
            let sample = self.labelled(process, &stack, None);
            self.sample(sample, [0, gone, path.closed]);
        }
    }

    fn labelled(&mut self, process: &ProcessSites, stack: &[u64], class: Option<&Class>) -> Sample {
        let mut texts = vec![(
            self.text("process"),
            self.text(&sanitize_str(&process.comm)),
        )];
        if let Some(class) = class {
            texts.push((self.text("class"), self.text(&class_name(class))));
        }
        Sample {
            stack: stack.to_vec(),
            texts,
            pid: (self.text("pid"), process.pid),
        }
    }

    /// Adds a sample. A line may be at several addresses: equal samples are merged.
    fn sample(&mut self, sample: Sample, counts: [u64; 3]) {
        let at = *self.sample_at.entry(sample.clone()).or_insert_with(|| {
            self.samples.push((sample, [0; 3]));
            self.samples.len() - 1
        });
        for (sum, count) in self.samples[at].1.iter_mut().zip(counts) {
            *sum += count;
        }
    }

    fn location(&mut self, frame: &Frame) -> u64 {
        if let Some(id) = self.locations.get(frame) {
            return *id;
        }
        let function = sanitize_str(frame.function.as_deref().unwrap_or("?")).into_owned();
        let file = frame.file.as_ref().map(sanitize);
        let function = self.function(&function, file.as_deref().unwrap_or(""));
        let module = frame.module.as_ref().filter(|module| !module.is_empty());
        let module = module.map(sanitize);
        let mapping = module.map_or(0, |module| self.mapping(&module));
        let id = self.locations.len() as u64 + 1;
        self.locations.insert(frame.clone(), id);
        self.out.message(profile::LOCATION, |location| {
            location.number(1, id);
            location.number(2, mapping);
            location.message(4, |line| {
                line.number(1, function);
                line.number(2, frame.line.unwrap_or(0).into());
            });
        });
        id
    }

    /// The only frame of an unknown stack.
    fn lost(&mut self) -> u64 {
        self.location(&Frame {
            file: None,
            function: Some(format!("[{}]", name::LOST)),
            line: None,
            module: None,
            language: fdguard_core::origin::Language::Native,
        })
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let key = (self.text(name), self.text(file));
        if let Some(id) = self.functions.get(&key) {
            return *id;
        }
        let id = self.functions.len() as u64 + 1;
        self.functions.insert(key, id);
        self.out.message(profile::FUNCTION, |function| {
            function.number(1, id);
            // Without a system name, readers keep the name unchanged and do not strip `<module>` or
            // `Vec<T>`.
            function.number(2, key.0);
            function.number(4, key.1);
        });
        id
    }

    /// Everything is symbolised already: readers need not look for symbols.
    fn mapping(&mut self, module: &str) -> u64 {
        const HAS_FUNCTIONS_FILES_LINES_INLINED: [u64; 4] = [7, 8, 9, 10];
        let file = self.text(module);
        if let Some(id) = self.mappings.get(&file) {
            return *id;
        }
        let id = self.mappings.len() as u64 + 1;
        self.mappings.insert(file, id);
        self.out.message(profile::MAPPING, |mapping| {
            mapping.number(1, id);
            mapping.number(5, file);
            for field in HAS_FUNCTIONS_FILES_LINES_INLINED {
                mapping.number(field, 1);
            }
        });
        id
    }

    fn text(&mut self, text: &str) -> u64 {
        if let Some(id) = self.texts.get(text) {
            return *id;
        }
        let id = self.text_list.len() as u64;
        self.texts.insert(text.to_owned(), id);
        self.text_list.push(text.to_owned());
        id
    }

    fn finish(mut self) -> Vec<u8> {
        for (sample, counts) in std::mem::take(&mut self.samples) {
            self.out.message(profile::SAMPLE, |out| {
                out.numbers(1, &sample.stack);
                out.numbers(2, &counts);
                for (key, text) in sample.texts {
                    out.message(3, |label| {
                        label.number(1, key);
                        label.number(2, text);
                    });
                }
                let (key, pid) = sample.pid;
                out.message(3, |label| {
                    label.number(1, key);
                    label.number(3, pid.into());
                });
            });
        }
        for text in &self.text_list {
            self.out.bytes(profile::STRING, text.as_bytes());
        }
        self.out.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::origin::Language;

    use super::{file, message};
    use crate::report::trace::testing::{MadeReport, frame};

    #[test]
    fn the_same_trace_is_the_same_file_and_it_is_compressed() {
        let stack = [frame("arm", Some(("main.c", 3)), Language::C)];
        let made = MadeReport::default().site("srv", &stack, 5);
        let bytes = file(&made.report()).unwrap();
        assert_eq!(bytes[..2], [0x1f, 0x8b]);
        assert_eq!(bytes, file(&made.report()).unwrap());
        let mut plain = Vec::new();
        let mut reader = flate2::read::GzDecoder::new(bytes.as_slice());
        std::io::Read::read_to_end(&mut reader, &mut plain).unwrap();
        assert_eq!(plain, message(&made.report()));
    }

    #[test]
    fn texts_are_told_once_and_the_first_is_empty() {
        let stack = [frame("arm", Some(("main.c", 3)), Language::C)];
        let other = [frame("arm", Some(("main.c", 4)), Language::C)];
        let made = MadeReport::default()
            .site("srv", &stack, 5)
            .site("srv", &other, 6);
        let bytes = message(&made.report());
        let count = |word: &[u8]| bytes.windows(word.len()).filter(|at| *at == word).count();
        assert_eq!(count(b"main.c"), 1);
        assert_eq!(count(b"open_descriptors"), 1);
        let (empty, next) = (b"\x32\x00".as_slice(), b"\x32\x05count".as_slice());
        assert_eq!(count(&[empty, next].concat()), 1);
    }
}
