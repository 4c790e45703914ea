//! Why descriptors are still open: asks a process for its heap. A copy of a Python process walks
//! it, a JVM is asked itself, a copy of a Node program writes a snapshot. All of it is judged by
//! `fdguard-why`.

mod ending;
mod go;
mod java;
mod language;
mod limit;
mod memory;
mod node;
mod waits;
mod walk;
mod watch;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use fdguard_attach::Target;
use fdguard_proc::stat::ProcStat;
use fdguard_why::{FirstWalk, Heap, Interpreter, Layout, Reader, ThreadWait, Why};
use fdguard_why::{find_generations, find_interpreter};

pub use self::java::{ExpectedStop, expected_stop};
use self::memory::ProcessMemory;
use self::walk::{Walk, WalkFailure};
pub use self::watch::{HeapWatch, ProcessWhy, SiteWhy};
use crate::kernel::python::{self, PythonHeap};

/// How often a walk is tried: the collector may be running, and a copy may meet what another thread
/// was about to change.
const TRIES: usize = 3;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(30);

/// A process whose heap can be walked.
#[derive(Debug)]
pub struct HeapTarget {
    pid: u32,
    /// `None` if it is only read.
    target: Option<Target>,
    runtime: Runtime,
    is_forced: bool,
    /// Whether a JVM may be stopped at all.
    has_time: bool,
}

/// What has the heap.
#[derive(Debug)]
enum Runtime {
    Python(Box<PythonTarget>),
    Java,
    Node,
    Go,
}

/// A Python interpreter.
#[derive(Debug)]
struct PythonTarget {
    heap: PythonHeap,
    interpreter: Interpreter,
}

/// Why a heap is not walked, in one line, and what works instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapRefusal {
    /// The reason.
    pub reason: String,
    /// What works instead; starts with a verb. Empty if nothing does.
    pub way: String,
    /// Whether the language has no such record at all.
    pub is_language: bool,
}

/// What a walk has found.
#[derive(Clone, Debug)]
pub struct HeapAnswer {
    /// One for each group.
    pub whys: Vec<Why>,
    /// How long a thread of the program was stopped.
    pub stop: Duration,
    /// How many objects there are.
    pub objects: usize,
    /// How many of them a full collection would take; `None` in a JVM.
    pub unreachable: Option<usize>,
    /// What a later walk needs of this one.
    pub seen: FirstWalk,
}

/// What goes wrong in walks, and how long they may take then. For tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WalkFaults {
    /// The walker of a Python faults in so many first tries.
    pub crashes: usize,
    /// A copy, of Python or Node, sleeps and does not wake up.
    pub hangs: bool,
    /// A copy of Node works without end.
    pub is_endless: bool,
    /// How long a copy may take that hangs or works without end.
    pub deadline: Option<Duration>,
    /// How long a copy of Python lives at most.
    pub life: Option<Duration>,
}

impl HeapRefusal {
    fn new(reason: impl Into<String>, way: &str) -> Self {
        Self {
            reason: reason.into(),
            way: way.to_owned(),
            is_language: false,
        }
    }
}

impl std::fmt::Display for HeapRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.way.as_str() {
            "" => f.write_str(&self.reason),
            way => write!(f, "{}: {way}", self.reason),
        }
    }
}

impl HeapTarget {
    /// Looks at a process without stopping it.
    pub fn examine(pid: u32) -> Result<Self, HeapRefusal> {
        let runtime = if java::is_java(pid) {
            Runtime::Java
        } else if node::is_node(pid) {
            Runtime::Node
        } else if go::is_go(pid) {
            return Ok(Self {
                pid,
                target: None,
                runtime: Runtime::Go,
                is_forced: false,
                has_time: true,
            });
        } else {
            Runtime::Python(Box::new(PythonTarget::examine(pid)?))
        };
        let target = Target::examine(pid).map_err(|refusal| {
            HeapRefusal::new(refusal.to_string(), refusal.remedy().unwrap_or_default())
        })?;
        Ok(Self {
            pid,
            target: Some(target),
            runtime,
            is_forced: false,
            has_time: true,
        })
    }

    /// Walks a heap of any size, if it is a JVM's or Node's.
    #[must_use]
    pub fn forced(mut self) -> Self {
        self.is_forced = true;
        self
    }

    /// A JVM goes on as soon as its clock is asked. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn without_time(mut self) -> Self {
        self.has_time = false;
        self
    }

    /// Whether every walk stops all threads of the program.
    #[must_use]
    pub const fn stops_all(&self) -> bool {
        matches!(self.runtime, Runtime::Java)
    }

    /// Whether every walk lets the program print a few lines.
    #[must_use]
    pub const fn is_heard(&self) -> bool {
        matches!(self.runtime, Runtime::Node)
    }

    /// Walks the heap, and answers for groups of descriptors. `first` is an earlier walk: plain
    /// numbers are judged only with one.
    pub fn ask(
        &self,
        groups: &[Vec<u32>],
        first: Option<&FirstWalk>,
    ) -> Result<HeapAnswer, HeapRefusal> {
        self.ask_with_faults(groups, first, &WalkFaults::default())
    }

    /// The same, but something goes wrong. For tests.
    #[doc(hidden)]
    pub fn ask_with_faults(
        &self,
        groups: &[Vec<u32>],
        first: Option<&FirstWalk>,
        faults: &WalkFaults,
    ) -> Result<HeapAnswer, HeapRefusal> {
        let Some(target) = &self.target else {
            return go::ask(self.pid, groups);
        };
        let python = match &self.runtime {
            Runtime::Python(python) => python,
            Runtime::Java => {
                return java::ask(self.pid, target, groups, self.is_forced, self.has_time);
            }
            Runtime::Node => {
                let asked = node::NodeQuestion {
                    pid: self.pid,
                    target,
                    is_forced: self.is_forced,
                    faults,
                };
                return asked.ask(groups, first);
            }
            Runtime::Go => return go::ask(self.pid, groups),
        };
        let mut failure = None;
        for attempt in 0..TRIES {
            if attempt > 0 {
                thread::sleep(PAUSE);
            }
            // Before a thread is borrowed, which ends its wait.
            let waits = waits::collect(self.pid);
            match Walk::begin(self.pid, target, python, attempt, faults) {
                Ok(walk) => {
                    let answer = self.judge(python, &walk, waits, groups, first);
                    let is_whole = walk.is_whole();
                    let stop = walk.end();
                    if is_whole {
                        return Ok(HeapAnswer { stop, ..answer });
                    }
                    failure = Some("the copy of the process ended".to_owned());
                }
                Err(WalkFailure::Passing(reason)) => failure = Some(reason),
                Err(WalkFailure::Lasting(refusal)) => return Err(refusal),
            }
        }
        let reason = failure.unwrap_or_else(|| "the walk failed".to_owned());
        Err(HeapRefusal::new(
            format!("{reason}, {TRIES} times"),
            "ask again when the program is less busy",
        ))
    }

    fn judge(
        &self,
        python: &PythonTarget,
        walk: &Walk<'_>,
        waits: BTreeMap<u64, ThreadWait>,
        groups: &[Vec<u32>],
        first: Option<&FirstWalk>,
    ) -> HeapAnswer {
        let paths = open_paths(self.pid);
        let tasks = waits::numbers(self.pid);
        let mut heap = Heap::new(&walk.memory, &python.interpreter, walk.graph(), &tasks);
        heap.waits = waits;
        let whys = heap.answer(groups, &paths, first);
        let open: BTreeMap<u32, u64> = paths.keys().map(|fd| (*fd, 0)).collect();
        HeapAnswer {
            whys,
            stop: Duration::ZERO,
            objects: heap.graph.len(),
            unreachable: Some(heap.garbage_count()),
            seen: heap.first_walk(open),
        }
    }
}

impl PythonTarget {
    fn examine(pid: u32) -> Result<Self, HeapRefusal> {
        let python = python::find_heap(pid).map_err(|refusal| match python::explain(refusal) {
            Some(reason) => HeapRefusal::new(reason, "use CPython 3.9 to 3.13"),
            None if !Path::new(&format!("/proc/{pid}")).exists() => {
                HeapRefusal::new("no such process", "")
            }
            None => language::refusal(pid),
        })?;
        let layout = Layout::of(python.minor);
        let layout =
            layout.ok_or_else(|| HeapRefusal::new("the Python is not known", "use 3.9 to 3.13"))?;
        if python.plain.iter().take(3).any(|one| *one == 0) {
            let reason = "the Python was built without its symbols";
            return Err(HeapRefusal::new(reason, "use a build that exports them"));
        }
        let memory = ProcessMemory::open(pid).map_err(|error| {
            HeapRefusal::new(format!("cannot read its memory ({error})"), "use sudo")
        })?;
        let reader = Reader::new(&memory, layout);
        let place = find_interpreter(&reader, python.runtime).and_then(|address| {
            let generations = find_generations(&reader, address)?;
            Some((address, generations))
        });
        let Some((address, generations)) = place else {
            let reason = "the interpreter has not started yet, or ends";
            return Err(HeapRefusal::new(reason, "ask again while it runs"));
        };
        Ok(Self {
            heap: python,
            interpreter: Interpreter {
                layout,
                address,
                generations,
            },
        })
    }
}

/// Whether a process has not ended.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    ProcStat::parse(&stat).is_some_and(|stat| !stat.is_zombie())
}

/// What is open, with the target of each.
fn open_paths(pid: u32) -> BTreeMap<u32, String> {
    let dir = std::fs::read_dir(format!("/proc/{pid}/fd"));
    let entries = dir.into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let fd = entry.file_name().to_str()?.parse().ok()?;
            let path = std::fs::read_link(entry.path()).ok()?;
            Some((fd, path.to_string_lossy().into_owned()))
        })
        .collect()
}
