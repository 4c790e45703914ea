//! Which frame of a stack to blame: the application's own code.
//!
//! Libraries open descriptors on behalf of their callers. The frame to blame is the innermost one
//! of the application's own code; where own code and libraries cannot be distinguished, the
//! innermost of all.

pub(crate) mod go;
mod interpreter;
mod launcher;
mod own;

use crate::Text;
use crate::origin::{Culprit, Frame, Language, Stack};
pub use interpreter::{language_of_program, unread_language};
use launcher::is_launcher;
use own::{is_own, is_package, is_users};

/// Java's class loader opens archives on the first use of a class and keeps them open.
const LOADERS: &[&str] = &["jdk.internal.loader.", "jdk.internal.module."];

/// The frames of the application's own code, innermost first. Console scripts are excluded.
pub fn own_frames(stack: &[Frame]) -> impl Iterator<Item = &Frame> {
    let stack = without_callers(stack);
    let outer = stack.get(linked_in(stack)..).unwrap_or_default();
    let own = outer.iter().filter(|frame| is_own(frame));
    own.filter(|frame| !is_launcher(frame, stack))
}

/// How many of the innermost frames are of a library that is linked into the program: the system
/// call was made by the program's own file, in functions without lines that code with lines called.
fn linked_in(stack: &[Frame]) -> usize {
    let Some(first) = stack.first().filter(|first| first.module.is_some()) else {
        return 0;
    };
    let is_linked = |frame: &&Frame| {
        frame.language == Language::Native && frame.line.is_none() && frame.module == first.module
    };
    let count = stack.iter().take_while(is_linked).count();
    let caller = stack.get(count);
    let is_program = |caller: &Frame| caller.line.is_some() && caller.module == first.module;
    if caller.is_some_and(is_program) {
        count
    } else {
        0
    }
}

/// The innermost frame of the application's own code. Without one, the most useful innermost frame:
/// of an installed package, then of a language with its own runtime (more useful than the runtime's
/// machine code below it), then any with a name or a file. None if only C functions of an
/// interpreter are left whose program is not read.
#[must_use]
pub fn culprit(stack: &[Frame]) -> Option<&Frame> {
    let stack = without_callers(stack);
    let spoken = || stack.iter().filter(|frame| is_spoken(frame));
    let package = || {
        let mut named = stack
            .iter()
            .filter(|frame| is_spoken(frame) || is_go(frame));
        named.find(|frame| is_package(frame))
    };
    let library = || spoken().find(|frame| !is_launcher(frame, stack));
    let by_lines = own_frames(stack).next().or_else(package).or_else(library);
    let found = by_lines.or_else(|| spoken().next());
    if found.is_some() || unread_language(stack).is_some() {
        return found;
    }
    let named = || stack.iter().filter(|frame| is_named(frame));
    let go = named().find(|frame| is_go(frame) && !is_go_ground(frame));
    go.or_else(|| named().next()).or_else(|| stack.first())
}

/// The place to blame: the culprit's, and of a program without names its file.
#[must_use]
pub fn blamed(stack: &[Frame]) -> Option<Culprit> {
    let stack = without_callers(stack);
    if let Some(own) = own_frames(stack).next() {
        return Some(own.into());
    }
    let nameless = stack.iter().find(|frame| is_users(frame));
    let nameless = nameless.filter(|frame| !is_launcher(frame, stack));
    let program = nameless.map(|frame| Culprit {
        file: frame.module.clone(),
        ..Culprit::from(frame)
    });
    program.or_else(|| culprit(stack).map(Culprit::from))
}

/// Whether the program's own code requested what this stack opened. A runtime that loads code for
/// itself acts on its own, whatever the outer frames are.
#[must_use]
pub fn is_programs(stack: &[Frame]) -> bool {
    for frame in without_callers(stack) {
        if is_loader(frame) || is_worker_start(frame) || is_class_start(frame) {
            return false;
        }
        if is_users(frame) && !is_launcher(frame, stack) {
            return true;
        }
    }
    false
}

/// Go's runtime opens its poller once, on whatever goroutine is the first to need it: its callers
/// did not ask for it.
fn without_callers(stack: &[Frame]) -> &[Frame] {
    let is_poller = |frame: &Frame| frame.language == Language::Go && go::is_poller(frame);
    let end = stack.iter().position(is_poller).map(|at| at + 1);
    stack.get(..end.unwrap_or(stack.len())).unwrap_or(stack)
}

/// Python's multiprocessing, and billiard, prepare each worker before the program's code runs in
/// it. The outer frames are of the parent, which forked.
fn is_worker_start(frame: &Frame) -> bool {
    const MODULES: [&[u8]; 2] = [b"multiprocessing/process.py", b"billiard/process.py"];
    let file = frame.file.as_ref().map_or(&[][..], Text::as_bytes);
    let function = frame.function.as_deref().unwrap_or_default();
    frame.language == Language::Python
        && function.ends_with("_bootstrap")
        && MODULES.iter().any(|module| file.ends_with(module))
}

fn is_loader(frame: &Frame) -> bool {
    let function = frame.function.as_deref().unwrap_or_default();
    frame.language == Language::Java && LOADERS.iter().any(|name| function.starts_with(name))
}

/// Java initializes a class once, for whichever code is the first to use it. What a class of the
/// JDK or of a library opens then, it keeps for all: the socket pair that wakes threads out of a
/// connection is opened by the first `close`.
fn is_class_start(frame: &Frame) -> bool {
    let function = frame.function.as_deref().unwrap_or_default();
    frame.language == Language::Java && function.ends_with(".<clinit>") && !is_users(frame)
}

fn is_go(frame: &Frame) -> bool {
    frame.language == Language::Go && is_named(frame)
}

/// Whether every open of a Go program goes through it.
fn is_go_ground(frame: &Frame) -> bool {
    let file = frame.file.as_ref().map(|file| file.to_lossy());
    let function = frame.function.as_deref().unwrap_or_default();
    go::is_ground(function, file.as_deref())
}

fn is_spoken(frame: &Frame) -> bool {
    frame.language.has_runtime() && is_named(frame)
}

/// When one line both leaks and is used correctly: the innermost own frame that appears in leaking
/// stacks and in no healthy one. Absent where the stacks do not differ in the application's code.
#[must_use]
pub fn leaking_caller_frame<'a>(leaking: &'a [Stack], healthy: &[Stack]) -> Option<&'a Frame> {
    let is_healthy = |frame: &Frame| healthy.iter().any(|stack| stack.contains(frame));
    // Each leaking stack proposes its innermost such frame; the one that most of them share wins.
    let candidates = leaking.iter().flat_map(|stack| {
        let mut own = own_frames(stack).enumerate();
        own.find(|(_, frame)| !is_healthy(frame))
    });
    let shared = |frame: &Frame| leaking.iter().filter(|stack| stack.contains(frame)).count();
    candidates
        .min_by_key(|(depth, frame)| (std::cmp::Reverse(shared(frame)), *depth))
        .map(|(_, frame)| frame)
}

fn is_named(frame: &Frame) -> bool {
    frame.file.is_some() || frame.function.is_some()
}

#[cfg(test)]
mod tests;
