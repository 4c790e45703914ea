//! A heap with what is needed to name what is in it.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::dict;
use crate::frame::{self, Local, ThreadFrame};
use crate::graph::{Graph, Index};
use crate::layout::{ENABLED, MODULE_DICT};
use crate::memory::{Memory, Reader};
use crate::place::{CodeOrigin, Origins};
use crate::types::{Kind, Type, Types};
use crate::wait::ThreadWait;
use crate::{Interpreter, layout};

/// The most callbacks of `atexit` that are read.
const MOST_CALLBACKS: u64 = 4096;
/// The largest body that is scanned for what it hides.
const MOST_BODY: u64 = 1024;
/// How much of a greenlet's state is scanned for its frame, in words: all of it.
const GREENLET_STATE: usize = 28;
const GREENLET_POINTER: u64 = 32;

/// A module, by its dict.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) origin: CodeOrigin,
}

/// A heap.
#[derive(Debug)]
pub struct Heap<'m> {
    pub(crate) reader: Reader<'m>,
    /// Its objects.
    pub graph: Graph,
    types: Types,
    pub(crate) garbage: Vec<bool>,
    /// Whether the collector runs by itself.
    pub is_collecting: bool,
    /// What frames of threads have, by address.
    pub(crate) locals: FxHashMap<u64, Vec<Local>>,
    /// What the interpreter itself holds, by address.
    pub(crate) labels: FxHashMap<u64, &'static str>,
    pub(crate) modules: FxHashMap<u64, Module>,
    pub(crate) origins: Origins,
    /// What bodies of C objects hold without telling, by address.
    hidden: OnceCell<FxHashMap<u64, Vec<Index>>>,
    /// Threads that waited when the copy was made, by the number that the program knows.
    pub waits: BTreeMap<u64, ThreadWait>,
}

impl<'m> Heap<'m> {
    /// From what the walker left, and the memory that it left it in. `tasks` are the numbers of the
    /// program's threads, as it knows them.
    #[must_use]
    pub fn new(
        memory: &'m dyn Memory,
        interpreter: &Interpreter,
        graph: Graph,
        tasks: &[u64],
    ) -> Self {
        let reader = Reader::new(memory, interpreter.layout);
        let enabled = interpreter.generations.wrapping_sub(ENABLED);
        let is_collecting = reader.int(enabled, 0).is_none_or(|enabled| enabled != 0);
        let garbage = graph.unreachable();
        let mut heap = Self {
            reader,
            graph,
            types: Types::default(),
            garbage,
            is_collecting,
            locals: FxHashMap::default(),
            labels: FxHashMap::default(),
            modules: FxHashMap::default(),
            origins: Origins::default(),
            hidden: OnceCell::new(),
            waits: BTreeMap::new(),
        };
        heap.find_modules();
        heap.find_locals(interpreter.address, tasks);
        heap.find_labels(interpreter.address);
        heap
    }

    pub(crate) fn type_of(&self, object: Index) -> Option<Rc<Type>> {
        let one = self.graph.objects.get(object as usize)?;
        let kind = match one.kind {
            0 => self.reader.kind(one.address)?,
            kind => kind,
        };
        self.types.get(&self.reader, kind)
    }

    /// The class at an address.
    pub(crate) fn class(&self, address: u64) -> Option<Rc<Type>> {
        self.types.get(&self.reader, address)
    }

    pub(crate) fn kind_of(&self, object: Index) -> Kind {
        self.type_of(object).map_or(Kind::Other, |one| one.kind)
    }

    pub(crate) fn is_garbage(&self, object: Index) -> bool {
        self.garbage.get(object as usize).is_some_and(|mark| *mark)
    }

    /// How many objects a full collection would take.
    #[must_use]
    pub fn garbage_count(&self) -> usize {
        self.garbage.iter().filter(|mark| **mark).count()
    }

    fn walked(&self) -> impl Iterator<Item = Index> + use<> {
        0..Index::try_from(self.graph.walked).unwrap_or(Index::MAX)
    }

    fn find_modules(&mut self) {
        let mut modules = Vec::new();
        for object in self.walked() {
            if self.kind_of(object) == Kind::Module {
                let address = self.graph.address(object);
                modules.extend(self.reader.pointer(address, MODULE_DICT));
            }
        }
        let text = |dict: u64, name: &str| {
            let value = dict::get(&self.reader, dict, name)?;
            self.reader.text(value)
        };
        let named: Vec<(u64, String, Option<String>)> = modules
            .into_iter()
            .map(|dict| {
                let name = text(dict, "__name__").unwrap_or_else(|| "?".to_owned());
                (dict, name, text(dict, "__file__"))
            })
            .collect();
        let os = named.iter().find(|(_, name, _)| name == "os");
        self.origins = Origins::new(os.and_then(|(.., file)| file.as_deref()));
        for (dict, name, file) in named {
            let origin = self.origins.of_module(&name, file.as_deref());
            self.modules.insert(dict, Module { name, origin });
        }
    }

    fn find_locals(&mut self, interpreter: u64, tasks: &[u64]) {
        let mut locals = Vec::new();
        for thread in frame::threads(&self.reader, interpreter) {
            for one in frame::frames(&self.reader, thread, tasks) {
                locals.extend(frame::locals(&self.reader, one));
            }
        }
        for object in self.walked() {
            if self.kind_of(object) == Kind::Greenlet {
                locals.extend(self.greenlet_locals(object));
            }
        }
        self.graph
            .add_leaves(locals.iter().map(|local| local.value));
        self.garbage.resize(self.graph.objects.len(), false);
        for local in locals {
            self.locals.entry(local.value).or_default().push(local);
        }
    }

    /// The values of the frames of a greenlet that waits: its state has a pointer to its frame.
    /// What follows, the end of its stack of frames, may point to one that has returned.
    fn greenlet_locals(&self, object: Index) -> Vec<Local> {
        let address = self.graph.address(object);
        let state = self.reader.pointer(address, GREENLET_POINTER);
        let words = state.and_then(|state| self.reader.words(state, GREENLET_STATE));
        let mut locals = Vec::new();
        for word in words.unwrap_or_default() {
            let mut next = Some(word).filter(|word| word % 8 == 0 && *word != 0);
            let mut left = 256;
            while let Some(at) = next.filter(|at| frame::code(&self.reader, *at).is_some()) {
                let frame = ThreadFrame {
                    frame: at,
                    thread: u64::MAX,
                };
                locals.extend(frame::locals(&self.reader, frame));
                left -= 1;
                let back = self.reader.at.frames.frame_back;
                next = self.reader.pointer(at, back.into()).filter(|_| left > 0);
            }
            if left < 256 {
                break;
            }
        }
        locals
    }

    fn find_labels(&mut self, interpreter: u64) {
        let at = self.reader.at;
        for thread in frame::threads(&self.reader, interpreter) {
            for (offset, label) in [
                (at.thread_dict, "a thread-local value"),
                (at.thread_context, "a context variable"),
            ] {
                if let Some(address) = self.reader.pointer(thread, offset) {
                    self.labels.insert(address, label);
                }
            }
        }
        if at.interpreter_atexit == 0 {
            return;
        }
        let field = |offset| {
            self.reader
                .field(interpreter, at.interpreter_atexit + offset)
        };
        let (callbacks, count) = (field(0).unwrap_or(0), field(8).unwrap_or(0));
        let count = count & 0xffff_ffff;
        if callbacks == 0 || count > MOST_CALLBACKS {
            return;
        }
        for index in 0..count {
            let Some(callback) = self.reader.pointer(callbacks, index * 8) else {
                continue;
            };
            for part in [0, 8, 16] {
                if let Some(address) = self.reader.pointer(callback, part) {
                    self.labels.insert(address, "an atexit callback");
                }
            }
        }
    }

    /// Objects whose bodies have the address of one that they do not tell the collector about.
    pub(crate) fn hidden_holders(&self, object: Index) -> &[Index] {
        let hidden = self.hidden.get_or_init(|| self.scan_bodies());
        let found = hidden.get(&self.graph.address(object));
        found.map_or(&[], Vec::as_slice)
    }

    fn scan_bodies(&self) -> FxHashMap<u64, Vec<Index>> {
        let mut hidden: FxHashMap<u64, Vec<Index>> = FxHashMap::default();
        for holder in self.walked() {
            let Some(of) = self.type_of(holder) else {
                continue;
            };
            let is_scanned = of.kind == Kind::Other && (24..=MOST_BODY).contains(&of.size);
            if !is_scanned || of.name.contains("weak") {
                continue;
            }
            let address = self.graph.address(holder);
            for offset in (16..of.size).step_by(8) {
                let word = self.reader.field(address, offset).unwrap_or(0);
                let Some(target) = self.graph.index_of(word).filter(|_| word != 0) else {
                    continue;
                };
                if !self.graph.targets(holder).contains(&target) {
                    hidden.entry(word).or_default().push(holder);
                }
            }
        }
        hidden
    }
}

/// Where the interpreter's collector is: the only place of its structure that points to itself in
/// this way. `None` if there is none.
#[must_use]
pub fn find_generations(reader: &Reader<'_>, interpreter: u64) -> Option<u64> {
    const SPAN: u64 = 64 << 10;
    let is_one = |at: u64| reader.field(at, layout::GENERATION_0) == Some(at);
    let is_list = |head: u64| {
        let next = reader.word(head)? & !3;
        let back = reader.field(next, 8)? & !3;
        Some(back == head)
    };
    let lists = [
        0,
        layout::GENERATION,
        2 * layout::GENERATION,
        layout::PERMANENT,
    ];
    (0..SPAN).step_by(8).find_map(|offset| {
        let at = interpreter.checked_add(offset)?;
        let is_found = is_one(at) && lists.iter().all(|list| is_list(at + list) == Some(true));
        is_found.then_some(at)
    })
}

/// The main interpreter, if it is where it should be.
#[must_use]
pub fn find_interpreter(reader: &Reader<'_>, runtime: u64) -> Option<u64> {
    let interpreter = reader.pointer(runtime, reader.at.runtime_main)?;
    let thread = reader.pointer(interpreter, reader.at.interpreter_threads)?;
    let back = reader.field(thread, layout::THREAD_INTERPRETER)?;
    (back == interpreter).then_some(interpreter)
}
