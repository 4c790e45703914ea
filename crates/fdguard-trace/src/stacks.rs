//! Interns the stacks of all processes of a trace.

use std::collections::{BTreeSet, HashMap};

use fdguard_core::TraceKey;
use fdguard_core::event::StackId;
use fdguard_wire::{EventRecord, RuntimeLanguage};

use crate::java::JavaClasses;
use crate::lifetimes::LOST_STACK;
use crate::source::TraceSource;
use crate::table::{ProcessTable, RawFrame};

/// The stacks of all processes, read when they are first seen: their tables may be gone at the end.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    numbers: HashMap<TraceKey, HashMap<u32, StackId>>,
    /// Thousands of processes of one program share the same few stacks.
    same: HashMap<Vec<RawFrame>, StackId>,
    raw_frames: Vec<Vec<RawFrame>>,
    traits: Vec<StackTraits>,
    /// The classes of each JVM, read with its first stack: it may be gone at the end.
    java: HashMap<TraceKey, Option<JavaClasses>>,
}

impl Stacks {
    /// Reads the stacks that are new in these events.
    pub(crate) fn learn(
        &mut self,
        key: TraceKey,
        source: &dyn TraceSource,
        events: &[EventRecord],
    ) {
        let known = self.numbers.entry(key).or_default();
        let is_new = |stack: &u32| *stack != 0 && !known.contains_key(stack);
        let new: BTreeSet<u32> = events
            .iter()
            .map(|event| event.stack)
            .filter(is_new)
            .collect();
        if new.is_empty() {
            return;
        }
        // Without its table a stack has no frames.
        let table = source.table(key).ok().flatten();
        self.learn_from(key, table.as_ref(), new);
    }

    pub(crate) fn learn_from(
        &mut self,
        key: TraceKey,
        table: Option<&ProcessTable>,
        stacks: BTreeSet<u32>,
    ) {
        // Before the program ends, and before anything is to be named.
        if table.is_some_and(|table| table.comm == "java") {
            let classes = self.java.entry(key);
            classes.or_insert_with(|| JavaClasses::read(key.pid));
        }
        let known = self.numbers.entry(key).or_default();
        for stack in stacks {
            if known.contains_key(&stack) {
                continue;
            }
            let mut raw_frames = table
                .map(|table| table.raw_frames(stack))
                .unwrap_or_default();
            find_libraries(&mut self.java, key, &mut raw_frames);
            if raw_frames.is_empty() && table.is_some() {
                // Another thread is writing it right now: the next event that refers to it tries
                // again.
                continue;
            }
            let next = StackId(u32::try_from(self.raw_frames.len()).unwrap_or(u32::MAX));
            let number = *self
                .same
                .entry(raw_frames)
                .or_insert_with_key(|raw_frames| {
                    self.traits.push(StackTraits::from_raw_frames(raw_frames));
                    self.raw_frames.push(raw_frames.clone());
                    next
                });
            known.insert(stack, number);
        }
    }

    pub(crate) fn has(&self, number: StackId, what: impl Fn(&StackTraits) -> bool) -> bool {
        let index = usize::try_from(number.0).unwrap_or(usize::MAX);
        self.traits.get(index).is_some_and(what)
    }

    /// Its events were all read; the stacks that they refer to are kept.
    pub(crate) fn forget(&mut self, process: TraceKey) {
        self.numbers.remove(&process);
        self.java.remove(&process);
    }

    pub(crate) fn number(&self, key: TraceKey, stack: u32) -> StackId {
        let of_process = self.numbers.get(&key);
        let known = of_process.and_then(|known| known.get(&stack));
        known.copied().unwrap_or(LOST_STACK)
    }

    pub(crate) fn raw_frames_of(&self, number: StackId) -> &[RawFrame] {
        let known = usize::try_from(number.0)
            .ok()
            .and_then(|index| self.raw_frames.get(index));
        known.map(Vec::as_slice).unwrap_or_default()
    }
}

/// Marks the Java frames that belong to libraries.
fn find_libraries(
    java: &mut HashMap<TraceKey, Option<JavaClasses>>,
    key: TraceKey,
    raw_frames: &mut [RawFrame],
) {
    for raw_frame in raw_frames {
        if let RawFrame::Language {
            tongue: RuntimeLanguage::Java,
            function,
            library,
            ..
        } = raw_frame
        {
            let classes = java.entry(key);
            let classes = classes.or_insert_with(|| JavaClasses::read(key.pid));
            *library = classes
                .as_mut()
                .and_then(|classes| classes.library(function));
        }
    }
}

/// The kind of code in a stack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StackTraits {
    pub(crate) is_python: bool,
    /// The outermost level of a Python program or module.
    pub(crate) is_in_module: bool,
}

impl StackTraits {
    fn from_raw_frames(raw_frames: &[RawFrame]) -> Self {
        let mut code = Self::default();
        for raw_frame in raw_frames {
            if let RawFrame::Language {
                tongue: RuntimeLanguage::Python,
                function,
                ..
            } = raw_frame
            {
                code.is_python = true;
                code.is_in_module |= function == "<module>";
            }
        }
        code
    }
}
