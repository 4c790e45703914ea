//! The tables that the traced processes wrote, as values.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use fdguard_core::TraceKey;
use fdguard_wire::{
    Account, FrameRecord, INCOMPLETE_EXIT_REPORT, OpenCall, PreventedHarm, RuntimeLanguage,
    TableImage,
};

use crate::Error;
use crate::kernel::StackStore;
use crate::latest_keys::LatestKeys;
use crate::listener::monotonic;
use crate::preload::PreloadSource;
use crate::source::TraceSource;

/// The tables of every process of a trace, by process and time.
#[derive(Clone, Debug, Default)]
pub struct ProcessTables {
    tables: BTreeMap<TraceKey, ProcessTable>,
    /// Those whose process is another program by now.
    outlived: BTreeSet<TraceKey>,
    /// When they began to be read, by the monotonic clock.
    pub(crate) read_at: u64,
}

/// What one process recorded since it began, or since its last exec.
#[derive(Clone, Debug)]
pub struct ProcessTable {
    /// The process.
    pub pid: u32,
    /// When it began, by the monotonic clock, in nanoseconds.
    pub began: u64,
    /// Its name at that time.
    pub comm: String,
    /// The process that it was forked from.
    pub parent: Option<TraceKey>,
    /// What is open, by number.
    pub open: BTreeMap<u32, Descriptor>,
    /// The numbers that were open once and are closed now.
    pub closed: BTreeSet<u32>,
    /// What each stack opened, and what happened to it.
    pub accounts: HashMap<u32, Account>,
    /// Numbers that were open before its first instruction, or before the attach.
    pub inherited: Vec<u32>,
    /// The stack that used each number last, where that is recorded.
    pub(crate) users: HashMap<u32, u32>,
    /// Whether the library came into the running program.
    pub is_attached: bool,
    /// When the recording ended although the process went on, by the monotonic clock.
    pub ended: Option<u64>,
    /// References to interposed functions that do not lead to the library: a gap.
    pub unhooked: u64,
    /// Threads that left the process's descriptor table for one of their own: a gap.
    pub apart: u64,
    /// Opens and closes that were not recorded.
    pub lost_events: u64,
    /// Stacks that did not fit.
    pub lost_stacks: u64,
    /// Descriptors whose close was not seen.
    pub unseen_closes: u64,
    /// Whether it is protected.
    pub is_protected: bool,
    /// Descriptors that protection now holds in it, which the program does not know of.
    pub quarantined: u64,
    /// What protection prevented, by the id of its hazard.
    pub prevented: BTreeMap<&'static str, u64>,
    /// The time of its last event, by the monotonic clock; `None` before the first.
    pub last: Option<u64>,
    frames: TableFrames,
    file: PathBuf,
}

/// Where the frames of its stacks are.
#[derive(Clone, Debug)]
enum TableFrames {
    /// Read from its file.
    Read {
        stacks: HashMap<u32, Vec<FrameRecord>>,
        modules: HashMap<u16, PathBuf>,
        texts: HashMap<u32, (String, String)>,
    },
    /// Of a kernel trace, which has one store for all processes.
    Stored(Arc<StackStore>),
}

/// What the kernel's events say of a process.
#[derive(Clone, Debug)]
pub(crate) struct TableContents {
    pub(crate) key: TraceKey,
    pub(crate) comm: String,
    pub(crate) parent: Option<TraceKey>,
    pub(crate) open: BTreeMap<u32, Descriptor>,
    pub(crate) closed: BTreeSet<u32>,
    pub(crate) accounts: HashMap<u32, Account>,
    pub(crate) inherited: Vec<u32>,
    pub(crate) is_attached: bool,
    pub(crate) lost_events: u64,
    pub(crate) unseen_closes: u64,
    pub(crate) last: Option<u64>,
    pub(crate) stacks: Arc<StackStore>,
}

/// An open descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Generation: how many times this descriptor number has been used.
    pub generation: u32,
    /// The stack that opened it; 0 if unknown.
    pub stack: u32,
    /// The thread.
    pub tid: u32,
    /// When it was opened, by the monotonic clock, in nanoseconds.
    pub ns: u64,
    /// The call that opened it.
    pub call: OpenCall,
    /// How many forks ago: the stack is an ancestor's.
    pub forks: u8,
    /// The time of the latest event before its last use; 0 if it was not used.
    pub used: u64,
}

/// The buffer grows in steps of this size.
const BUFFER_STEP: usize = 1 << 20;

thread_local! {
    /// Most of a table is a hole that is never read: a new buffer each time would be zeroed for
    /// nothing, which takes longer than reading the rest.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What a process left open when it exited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitReport {
    /// The names of its open descriptors, as far as it listed them.
    pub names: BTreeMap<u32, Vec<u8>>,
    /// Whether it lists all open descriptors: one without a name is closed.
    pub is_whole: bool,
}

impl ExitReport {
    /// The most descriptors that it lists.
    const MOST: usize = 4096;

    fn parse(bytes: &[u8]) -> Self {
        let lines = bytes.split(|byte| *byte == 0);
        let parsed = lines.filter_map(|line| {
            let blank = line.iter().position(|byte| *byte == b' ')?;
            let fd = std::str::from_utf8(&line[..blank]).ok()?.parse().ok()?;
            Some((fd, line[blank + 1..].to_vec()))
        });
        let names: BTreeMap<u32, Vec<u8>> = parsed.collect();
        let is_whole = names.len() < Self::MOST && bytes != INCOMPLETE_EXIT_REPORT;
        Self { names, is_whole }
    }
}

/// A frame with what is needed to name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RawFrame {
    Native {
        module: PathBuf,
        offset: u64,
    },
    Unknown(u64),
    /// What follows is the stack that created the goroutine of what comes before.
    Creator,
    Language {
        tongue: RuntimeLanguage,
        file: String,
        function: String,
        line: u32,
        /// The archive of a Java library that it belongs to.
        library: Option<String>,
    },
}

impl ProcessTables {
    /// The tables that the processes of a trace wrote to its directory, for one of them that
    /// examines itself.
    pub fn from_dir(dir: &Path) -> Result<Self, Error> {
        Self::read(&PreloadSource::foreign(dir))
    }

    /// Reads every table. An incomplete one is left for the next time.
    pub(crate) fn read(source: &dyn TraceSource) -> Result<Self, Error> {
        let read_at = monotonic();
        let keys = source.processes()?;
        let table = |key| Some((key, source.table(key).ok().flatten()?));
        Ok(Self {
            tables: keys.into_iter().filter_map(table).collect(),
            outlived: BTreeSet::new(),
            read_at,
        })
    }

    /// The latest table of each process that is not another program by now.
    pub fn latest(&self) -> impl Iterator<Item = &ProcessTable> {
        let mut pids: Vec<u32> = self.tables.keys().map(|key| key.pid).collect();
        pids.dedup();
        pids.into_iter().filter_map(|pid| self.table_of(pid))
    }

    /// The latest table of a process: since its last exec. `None` if its current program did not
    /// write one.
    #[must_use]
    pub fn table_of(&self, pid: u32) -> Option<&ProcessTable> {
        let key = |began| TraceKey { pid, began };
        let mut range = self.tables.range(key(0)..=key(u64::MAX));
        let (key, table) = range.next_back()?;
        (!self.outlived.contains(key)).then_some(table)
    }

    pub(crate) fn has(&self, key: TraceKey) -> bool {
        self.tables.contains_key(&key)
    }

    /// All tables.
    pub fn iter(&self) -> impl Iterator<Item = &ProcessTable> {
        self.tables.values()
    }

    /// Events that were lost in all of them.
    #[must_use]
    pub fn lost_events(&self) -> u64 {
        self.iter().map(|table| table.lost_events).sum()
    }

    /// The stack of a descriptor, innermost first, from the mapping that contains it.
    pub(crate) fn stack(&self, table: &ProcessTable, descriptor: &Descriptor) -> Vec<RawFrame> {
        if let TableFrames::Stored(stacks) = &table.frames {
            return stacks.frames(descriptor.stack);
        }
        let mut owner = table;
        for _ in 0..descriptor.forks {
            let parent = owner.parent.and_then(|key| self.tables.get(&key));
            let Some(parent) = parent else {
                return Vec::new();
            };
            owner = parent;
        }
        owner.raw_frames(descriptor.stack)
    }

    /// Marks the tables whose process is another program by now.
    pub(crate) fn outlive(&mut self, keys: &BTreeSet<TraceKey>) {
        self.outlived = keys.clone();
    }

    /// Takes out the tables that are older than the latest of a process, or that `keep` rejects.
    pub(crate) fn take_unwanted(
        &mut self,
        keep: impl Fn(&ProcessTable) -> bool,
    ) -> Vec<ProcessTable> {
        let latest = LatestKeys::new(self.tables.keys().copied());
        let parents: Vec<TraceKey> = self.iter().filter_map(|table| table.parent).collect();
        let mut unwanted = Vec::new();
        self.tables.retain(|key, table| {
            let is_wanted = (latest.contains(*key) && keep(table)) || parents.contains(key);
            if !is_wanted {
                unwanted.push(table.clone());
            }
            is_wanted
        });
        unwanted
    }
}

impl ProcessTable {
    /// The program that recorded it.
    #[must_use]
    pub fn key(&self) -> TraceKey {
        TraceKey {
            pid: self.pid,
            began: self.began,
        }
    }

    /// Whether the kernel recorded it, which does not record uses.
    pub(crate) fn is_of_kernel(&self) -> bool {
        matches!(self.frames, TableFrames::Stored(_))
    }

    /// Its exit report, if it ended by itself and a report was requested; see `fdguard-preload`'s
    /// `exit_report`.
    #[must_use]
    pub fn exit_report(&self) -> Option<ExitReport> {
        let bytes = std::fs::read(self.file.with_extension("left")).ok()?;
        Some(ExitReport::parse(&bytes))
    }

    /// Replaces the pids of a namespace with those that fdguard sees.
    pub(crate) fn rename(&mut self, key: TraceKey, parent: Option<TraceKey>) {
        self.pid = key.pid;
        self.parent = parent;
    }

    /// Replaces the names of modules with names under which fdguard can open them.
    pub(crate) fn relocate(&mut self, mut locate: impl FnMut(&Path) -> PathBuf) {
        if let TableFrames::Read { modules, .. } = &mut self.frames {
            for path in modules.values_mut() {
                *path = locate(path);
            }
        }
    }

    pub(crate) fn read(file: &File, path: &Path) -> io::Result<Option<Self>> {
        let mut head = vec![0; TableImage::HEAD];
        if file.read_exact_at(&mut head, 0).is_err() {
            return Ok(None);
        }
        let Some(image) = TableImage::new(&head) else {
            return Ok(None);
        };
        let (hole, words) = image.hole();
        let needed = image.needed();
        let last = last_event(file, image.tickets());
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < needed {
                // The old buffer is dropped first, so that the two never coexist.
                *buffer = Vec::new();
                *buffer = vec![0; needed.next_multiple_of(BUFFER_STEP)];
            }
            let bytes = buffer.get_mut(..needed).unwrap_or_default();
            fill(file, bytes, 0, hole)?;
            fill(file, bytes, words, needed)?;
            Ok(TableImage::new(bytes).map(|image| Self {
                last,
                ..Self::from_image(&image, path)
            }))
        })
    }

    fn from_image(image: &TableImage<'_>, path: &Path) -> Self {
        let open = image.open().filter_map(|(fd, record)| {
            let open = record.open?;
            let descriptor = Descriptor {
                generation: record.generation,
                stack: open.stack,
                tid: open.tid,
                ns: open.ns,
                call: open.call,
                forks: open.forks,
                used: record.used,
            };
            Some((fd, descriptor))
        });
        let accounts = image.sites().map(|site| (site.stack, site.account));
        let mut table = Self {
            pid: image.pid(),
            began: image.began(),
            comm: comm(&image.comm()),
            parent: image.parent().map(|(pid, began)| TraceKey { pid, began }),
            open: open.collect(),
            closed: image.closed().collect(),
            accounts: accounts.collect(),
            inherited: image.inherited().collect(),
            users: image.users().collect(),
            is_attached: image.is_attached(),
            ended: image.ended(),
            unhooked: image.unhooked(),
            apart: image.apart(),
            lost_events: image.lost_events(),
            lost_stacks: image.lost_stacks(),
            unseen_closes: image.unseen_closes(),
            is_protected: image.is_protected(),
            quarantined: image.quarantined(),
            prevented: prevented(image),
            last: None,
            frames: TableFrames::Stored(Arc::default()),
            file: path.to_owned(),
        };
        let users = table.users.values().copied();
        let users: BTreeSet<u32> = users.collect();
        let stacks = table.accounts.keys().copied();
        let users = users
            .into_iter()
            .filter(|stack| !table.accounts.contains_key(stack));
        table.frames = TableFrames::read(image, stacks.chain(users));
        table
    }

    /// A process that wrote no file.
    pub(crate) fn recorded(contents: TableContents) -> Self {
        Self {
            pid: contents.key.pid,
            began: contents.key.began,
            comm: contents.comm,
            parent: contents.parent,
            open: contents.open,
            closed: contents.closed,
            accounts: contents.accounts,
            inherited: contents.inherited,
            users: HashMap::new(),
            is_attached: contents.is_attached,
            ended: None,
            unhooked: 0,
            apart: 0,
            lost_events: contents.lost_events,
            lost_stacks: 0,
            unseen_closes: contents.unseen_closes,
            is_protected: false,
            quarantined: 0,
            prevented: BTreeMap::new(),
            last: contents.last,
            frames: TableFrames::Stored(contents.stacks),
            file: PathBuf::new(),
        }
    }

    pub(crate) fn raw_frames(&self, stack: u32) -> Vec<RawFrame> {
        self.frames.raw_frames(stack)
    }
}

impl TableFrames {
    fn read(image: &TableImage<'_>, numbers: impl Iterator<Item = u32>) -> Self {
        let (mut stacks, mut modules, mut texts) = (HashMap::new(), HashMap::new(), HashMap::new());
        for number in numbers {
            let frames: Vec<FrameRecord> = image.frames(number).collect();
            for frame in &frames {
                match frame {
                    FrameRecord::Native { module, .. } => {
                        modules.entry(*module).or_insert_with(|| {
                            let path = image.module(*module).map_or(&b""[..], |found| found.path);
                            PathBuf::from(bytes_to_os(path))
                        });
                    }
                    FrameRecord::Language { text, .. } => {
                        texts.entry(*text).or_insert_with(|| {
                            let (file, function) = image.text(*text).unwrap_or_default();
                            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                            (text(file), text(function))
                        });
                    }
                    FrameRecord::Address(_) => {}
                }
            }
            stacks.insert(number, frames);
        }
        Self::Read {
            stacks,
            modules,
            texts,
        }
    }

    fn raw_frames(&self, stack: u32) -> Vec<RawFrame> {
        let (stacks, modules, texts) = match self {
            Self::Stored(store) => return store.frames(stack),
            Self::Read {
                stacks,
                modules,
                texts,
            } => (stacks, modules, texts),
        };
        let frames = stacks.get(&stack).map(Vec::as_slice).unwrap_or_default();
        let raw_frame = |frame: &FrameRecord| match frame {
            FrameRecord::Native { module, offset } => RawFrame::Native {
                module: modules.get(module).cloned().unwrap_or_default(),
                offset: *offset,
            },
            FrameRecord::Address(address) => RawFrame::Unknown(*address),
            FrameRecord::Language { tongue, text, line } => {
                let (file, function) = texts.get(text).cloned().unwrap_or_default();
                RawFrame::Language {
                    tongue: *tongue,
                    file,
                    function,
                    line: *line,
                    library: None,
                }
            }
        };
        frames.iter().map(raw_frame).collect()
    }
}

/// What protection prevented, without zero counts.
fn prevented(image: &TableImage<'_>) -> BTreeMap<&'static str, u64> {
    let kinds = [
        ("use-after-close", PreventedHarm::Use),
        ("double-close", PreventedHarm::DoubleClose),
        ("stranger-close", PreventedHarm::Stranger),
    ];
    let counted = kinds.map(|(rule, kind)| (rule, image.prevented(kind)));
    counted
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// The time of the latest complete event; the very last may be being written.
fn last_event(file: &File, tickets: u64) -> Option<u64> {
    const TRIES: u64 = 64;
    (tickets.saturating_sub(TRIES)..tickets)
        .rev()
        .find_map(|ticket| {
            let mut bytes = [0; TableImage::EVENT];
            let at = TableImage::event_at(ticket) as u64;
            file.read_exact_at(&mut bytes, at).ok()?;
            TableImage::event(&bytes, ticket).map(|event| event.ns)
        })
}

fn comm(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

fn bytes_to_os(bytes: &[u8]) -> std::ffi::OsString {
    use std::os::unix::ffi::OsStringExt as _;
    std::ffi::OsString::from_vec(bytes.to_vec())
}

/// Reads a part of the file. Most of a table was never written to: only existing data is read.
fn fill(file: &File, bytes: &mut [u8], from: usize, to: usize) -> io::Result<()> {
    let Some(part) = bytes.get_mut(from..to) else {
        return Ok(());
    };
    let end = part.len();
    let offset = |found: u64| {
        let found = usize::try_from(found).unwrap_or(usize::MAX);
        found.saturating_sub(from).min(end)
    };
    let mut done = 0;
    while done < end {
        let at = (from + done) as u64;
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(found) => offset(found).max(done),
            Err(Errno::NXIO) => end,
            // The file system does not support holes.
            Err(_) => done,
        };
        part[done..data].fill(0);
        let hole = rustix::fs::seek(file, SeekFrom::Hole((from + data) as u64));
        let hole = hole.map_or(end, offset);
        let hole = if hole > data { hole } else { end };
        file.read_exact_at(&mut part[data..hole], (from + data) as u64)?;
        done = hole;
    }
    Ok(())
}

/// Reads any exit report, for the fuzz target.
#[cfg(feature = "fuzzing")]
pub fn fuzz_exit_report(bytes: &[u8]) {
    let report = ExitReport::parse(bytes);
    assert!(report.names.values().map(Vec::len).sum::<usize>() <= bytes.len());
}

#[cfg(test)]
mod tests {
    use super::ExitReport;

    #[test]
    fn a_threaded_program_that_had_no_time_to_tell_has_not_told_that_all_is_closed() {
        let untold = ExitReport::parse(fdguard_wire::INCOMPLETE_EXIT_REPORT);
        assert!(untold.names.is_empty() && !untold.is_whole);
        let none = ExitReport::parse(b"");
        assert!(none.names.is_empty() && none.is_whole);
        let one = ExitReport::parse(b"7 /srv/a log\0");
        assert_eq!(one.names[&7], b"/srv/a log");
        assert!(one.is_whole);
        let most: Vec<u8> = (0..4096)
            .flat_map(|fd| format!("{fd} /x\0").into_bytes())
            .collect();
        assert!(!ExitReport::parse(&most).is_whole);
    }
}
