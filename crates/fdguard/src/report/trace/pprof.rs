//! A profile for `pprof` and compatible tools: the message `perftools.profiles.Profile`, to be
//! compressed with gzip.
//!
//! A stack has one sample for each class that is open, and one without a class for everything else
//! that it opened.

use std::collections::HashMap;
use std::io::Write as _;

use fdguard_core::Pid;
use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::origin::{Frame, Language};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::protobuf::Message;
use super::tree::{Place, StackNode};
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
pub fn file(found: &Diagnosis, tree: &StackNode) -> std::io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&message(found, tree))?;
    gzip.finish()
}

/// The message.
#[must_use]
pub fn message(found: &Diagnosis, tree: &StackNode) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.describe(found);
    for process in &tree.inner {
        if let Place::Process { comm, pid } = &process.place {
            let comm = writer.text(&sanitize_str(comm));
            for node in &process.inner {
                writer.stacks((comm, *pid), node, &[]);
            }
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
        };
        // The specification requires the empty text first.
        writer.text("");
        writer
    }

    fn describe(&mut self, found: &Diagnosis) {
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
        let (began, ended) = (found.started_at, found.ended_at);
        let nanos = |nanos: i128| u64::try_from(nanos).unwrap_or(0);
        let length = ended.as_nanosecond() - began.as_nanosecond();
        let began = nanos(began.as_nanosecond());
        self.out.number(profile::TIME_NANOS, began);
        self.out.number(profile::DURATION_NANOS, nanos(length));
        let words = found.process.cmdline.iter().map(sanitize);
        let words: Vec<String> = words.collect();
        // Readers take the first module as the program.
        if let Some(exe) = &found.process.exe {
            self.mapping(&sanitize(exe));
        }
        let comment = self.text(&format!("fdguard trace -- {}", words.join(" ")));
        self.out.numbers(profile::COMMENT, &[comment]);
    }

    /// Samples of the stacks that go through a node; `outer` has the places around it, the
    /// innermost first.
    fn stacks(&mut self, process: (u64, Pid), node: &StackNode, outer: &[u64]) {
        let place = match &node.place {
            Place::Frame(frame) => self.location(frame),
            _ => self.location(&Frame {
                file: None,
                function: Some(node.name()),
                line: None,
                module: None,
                language: Language::Native,
            }),
        };
        let stack = [&[place], outer].concat();
        for (class, counts) in &node.own {
            let class = class.as_ref().map(|class| self.text(&class_name(class)));
            self.sample(process, &stack, class, *counts);
        }
        for inner in &node.inner {
            self.stacks(process, inner, &stack);
        }
    }

    fn sample(
        &mut self,
        (comm, pid): (u64, Pid),
        stack: &[u64],
        class: Option<u64>,
        counts: [u64; 3],
    ) {
        let [of_comm, of_class, of_pid] = ["process", "class", "pid"].map(|key| self.text(key));
        let labels = [Some((of_comm, comm)), class.map(|class| (of_class, class))];
        self.out.message(profile::SAMPLE, |out| {
            out.numbers(1, stack);
            out.numbers(2, &counts);
            for (key, text) in labels.into_iter().flatten() {
                out.message(3, |label| {
                    label.number(1, key);
                    label.number(2, text);
                });
            }
            out.message(3, |label| {
                label.number(1, of_pid);
                label.number(3, pid.into());
            });
        });
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
        for text in &self.text_list {
            self.out.bytes(profile::STRING, text.as_bytes());
        }
        self.out.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::origin::Language;

    use crate::report::trace::testing::{MadeReport, frame};
    use crate::report::trace::tree::StackNode;

    fn message(made: &MadeReport) -> Vec<u8> {
        super::message(&made.diagnosis, &StackNode::from_report(&made.report()))
    }

    fn file(made: &MadeReport) -> Vec<u8> {
        super::file(&made.diagnosis, &StackNode::from_report(&made.report())).unwrap()
    }

    #[test]
    fn the_same_trace_is_the_same_file_and_it_is_compressed() {
        let stack = [frame("arm", Some(("main.c", 3)), Language::C)];
        let made = MadeReport::default().site("srv", &stack, 5);
        let bytes = file(&made);
        assert_eq!(bytes[..2], [0x1f, 0x8b]);
        assert_eq!(bytes, file(&made));
        let mut plain = Vec::new();
        let mut reader = flate2::read::GzDecoder::new(bytes.as_slice());
        std::io::Read::read_to_end(&mut reader, &mut plain).unwrap();
        assert_eq!(plain, message(&made));
    }

    #[test]
    fn texts_are_told_once_and_the_first_is_empty() {
        let stack = [frame("arm", Some(("main.c", 3)), Language::C)];
        let other = [frame("arm", Some(("main.c", 4)), Language::C)];
        let made = MadeReport::default()
            .site("srv", &stack, 5)
            .site("srv", &other, 6);
        let bytes = message(&made);
        let count = |word: &[u8]| bytes.windows(word.len()).filter(|at| *at == word).count();
        assert_eq!(count(b"main.c"), 1);
        assert_eq!(count(b"open_descriptors"), 1);
        let (empty, next) = (b"\x32\x00".as_slice(), b"\x32\x05count".as_slice());
        assert_eq!(count(&[empty, next].concat()), 1);
    }
}
