//! The interpreter of this process: found by its symbols, recognised by its version, and checked
//! against the table before anything is trusted.
#![expect(
    unsafe_code,
    reason = "calls the interpreter's functions by their addresses"
)]

use core::ffi::{CStr, c_char, c_ulong, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use fdguard_wire::python::{
    DEBUG_SPAN, PythonOffsets, PythonRefusal, PythonSelfReport, parse_version,
};

use super::memory::{Direct, Memory, ProbedMemory};
use super::walk::{Place, PythonWalk, RawFrame};
use super::{render, walk};

/// This many walks and renderings read only memory that the kernel confirmed to be readable; after
/// that the layout is proven.
const PROVING: u32 = 16;

/// What is known of the interpreter's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) offsets: PythonOffsets,
    pub(crate) code_type: u64,
    pub(crate) unicode_type: u64,
    pub(crate) bytes_type: u64,
}

/// An interpreter that can be walked. It can be shared between threads and lives as long as the
/// interpreter's code stays loaded.
#[derive(Debug)]
pub(crate) struct Runtime {
    version: u32,
    layout: Layout,
    this_thread: unsafe extern "C" fn() -> *const c_void,
    /// `PyCoro_Type`; 0 if it is unknown.
    coroutine_type: u64,
    /// `_PyRuntime`.
    state: u64,
    /// Successful walks, up to [`PROVING`].
    walked: AtomicU32,
    /// Successful renderings, up to the same.
    rendered: AtomicU32,
}

impl Runtime {
    /// Recognises the interpreter whose symbols `dlsym` finds. To be called when the library is
    /// loaded. In a hook, `dlsym` must not lock, as the loader's own may.
    ///
    /// # Safety
    ///
    /// `dlsym` must behave like dlsym(3), and the module that defines the symbols must not be
    /// unloaded while this is used.
    pub(crate) unsafe fn find(
        dlsym: impl Fn(&CStr) -> *const c_void,
    ) -> Result<Self, PythonRefusal> {
        if !cfg!(all(target_pointer_width = "64", target_endian = "little")) {
            return Err(PythonRefusal::Machine);
        }
        let address = |name: &CStr| {
            let found = dlsym(name);
            (!found.is_null()).then_some(found)
        };
        // SAFETY: guaranteed by the caller.
        let Some(version) = (unsafe { version(&address) }) else {
            let is_pypy = address(c"pypy_main_startup").is_some();
            return Err(if is_pypy {
                PythonRefusal::PyPy
            } else {
                PythonRefusal::NoPython
            });
        };
        let offsets = PythonOffsets::of_version(version)?;
        let needed = |name: &CStr| address(name).ok_or(PythonRefusal::SymbolMissing);
        let this_thread = needed(c"PyGILState_GetThisThreadState")?;
        // SAFETY: the function has this type in every version in the table.
        let this_thread = unsafe {
            core::mem::transmute::<*const c_void, unsafe extern "C" fn() -> *const c_void>(
                this_thread,
            )
        };
        let object = |name: &CStr| needed(name).map(|found| found.expose_provenance() as u64);
        let layout = Layout {
            offsets,
            code_type: object(c"PyCode_Type")?,
            unicode_type: object(c"PyUnicode_Type")?,
            bytes_type: object(c"PyBytes_Type")?,
        };
        let state = object(c"_PyRuntime")?;
        let found = Self {
            version,
            layout: layout.checked(ProbedMemory, version, state, object(c"PyFrame_Type")?)?,
            this_thread,
            coroutine_type: object(c"PyCoro_Type").unwrap_or(0),
            state,
            walked: AtomicU32::new(0),
            rendered: AtomicU32::new(0),
        };
        // It is set only at the very end: read at the offset of another layout it could be
        // anything, and every thread would seem to run no Python.
        if found.finalizing() != Some(0) {
            return Err(PythonRefusal::LayoutDiffers);
        }
        Ok(found)
    }

    /// The offsets for this interpreter.
    pub(crate) const fn offsets(&self) -> &PythonOffsets {
        &self.layout.offsets
    }

    /// Encoded like `Py_Version`: `0x030b07f0` is 3.11.7.
    pub(crate) const fn version(&self) -> u32 {
        self.version
    }

    /// Lists the frames of the calling thread, the innermost first. `None` if the thread runs no
    /// Python: it never did, or the interpreter is shutting down.
    pub(crate) fn walk(&self, frames: &mut [RawFrame]) -> Option<PythonWalk> {
        let thread = self.thread()?;
        if self.walked.load(Ordering::Relaxed) >= PROVING {
            // SAFETY: these are the calling thread's own frames, complete except for the innermost,
            // and the layout has been correct so far.
            let direct = unsafe { Direct::trusting() };
            return Some(walk::walk(
                ProbedMemory,
                direct,
                &self.layout,
                thread,
                frames,
            ));
        }
        let walked = walk::walk(ProbedMemory, ProbedMemory, &self.layout, thread, frames);
        self.count(&walked);
        Some(walked)
    }

    /// The same without keeping the frames: how many there are, up to `depth`, and their hash.
    /// `is_whole` if the innermost frame is known to be complete: no signal arrived in between.
    /// `pass` gets the place of each.
    #[inline]
    pub(crate) fn glance(
        &self,
        depth: usize,
        is_whole: bool,
        pass: impl FnMut(Place),
    ) -> Option<PythonWalk> {
        let thread = self.thread()?;
        if self.walked.load(Ordering::Relaxed) < PROVING {
            return self.prove(thread, depth, pass);
        }
        // SAFETY: as in `walk`.
        let direct = unsafe { Direct::trusting() };
        let layout = &self.layout;
        let walked = if is_whole {
            walk::glance(direct, direct, layout, thread, depth, pass)
        } else {
            walk::glance(ProbedMemory, direct, layout, thread, depth, pass)
        };
        Some(walked)
    }

    #[cold]
    #[inline(never)]
    fn prove(&self, thread: u64, depth: usize, pass: impl FnMut(Place)) -> Option<PythonWalk> {
        let walked = walk::glance(
            ProbedMemory,
            ProbedMemory,
            &self.layout,
            thread,
            depth,
            pass,
        );
        self.count(&walked);
        Some(walked)
    }

    /// Counts a successful walk.
    fn count(&self, walked: &PythonWalk) {
        if walked.frames > 0 && !walked.is_broken {
            let before = self.walked.load(Ordering::Relaxed);
            self.walked
                .store(before.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Writes the record of what [`Self::walk`] found in this same hook call, and returns its
    /// length; see [`super::record`] for the format.
    pub(crate) fn render(
        &self,
        frames: &[RawFrame],
        walked: &PythonWalk,
        into: &mut [u8],
    ) -> usize {
        let frames = frames.get(..walked.frames).unwrap_or_default();
        let rendered = self.rendered.load(Ordering::Relaxed);
        if rendered >= PROVING {
            // SAFETY: the frames hold their code objects, the layout has been correct so far, and
            // code objects hold these texts.
            let direct = unsafe { Direct::trusting() };
            return render::render(ProbedMemory, direct, &self.layout, frames, walked, into).length;
        }
        let done = render::render(
            ProbedMemory,
            ProbedMemory,
            &self.layout,
            frames,
            walked,
            into,
        );
        if done.is_whole && walked.frames > 0 {
            self.rendered
                .store(rendered.saturating_add(1), Ordering::Relaxed);
        }
        done.length
    }

    /// The frame of the coroutine that a task is created with: the first of these arguments, a
    /// tuple. `None` for anything other than a native Python coroutine.
    pub(crate) fn coroutine_of(&self, arguments: u64) -> Option<Place> {
        if self.walked.load(Ordering::Relaxed) < PROVING {
            return self.coroutine_in(ProbedMemory, arguments);
        }
        // SAFETY: the interpreter calls with a tuple, which holds its items, and the layout has
        // been correct so far; a coroutine is followed further only after its type was compared.
        let direct = unsafe { Direct::trusting() };
        self.coroutine_in(direct, arguments)
    }

    fn coroutine_in<M: Memory>(&self, memory: M, arguments: u64) -> Option<Place> {
        let at = &self.layout.offsets;
        let items = u64::from(at.tuple_items);
        let tuple = memory.span(arguments, items)?;
        if tuple.word(at.tuple_length)? == 0 || self.coroutine_type == 0 {
            return None;
        }
        let coroutine = memory.span(arguments.checked_add(items)?, 8)?.word(0)?;
        let length = u64::from(at.object_type).checked_add(8)?;
        if memory.span(coroutine, length)?.word(at.object_type)? != self.coroutine_type {
            return None;
        }
        let frame = if at.has_frame_objects() {
            let length = u64::from(at.generator_frame).checked_add(8)?;
            // Null if it has already run.
            memory.span(coroutine, length)?.word(at.generator_frame)?
        } else {
            coroutine.checked_add(u64::from(at.generator_frame))?
        };
        let length = u64::from(at.frame_code).checked_add(8)?;
        let code = memory.span(frame, length)?.word(at.frame_code)?;
        Some(Place {
            frame,
            code,
            is_generator: true,
        })
    }

    /// The first argument of the function that runs in a frame of the calling thread.
    pub(crate) fn first_argument(&self, frame: u64) -> Option<u64> {
        let at = self.layout.offsets.frame_locals;
        let length = u64::from(at).checked_add(8)?;
        ProbedMemory.span(frame, length)?.word(at)
    }

    /// Whether the object is a class with the metaclass `metaclass` and this null-terminated name.
    pub(crate) fn is_type_of_name(&self, object: u64, metaclass: u64, name: &[u8]) -> bool {
        let at = &self.layout.offsets;
        let found = || {
            let length = u64::from(at.type_alloc).checked_add(8)?;
            let object = ProbedMemory.span(object, length)?;
            if object.word(at.object_type)? != metaclass {
                return None;
            }
            let text = ProbedMemory.span(object.word(at.type_name)?, name.len() as u64)?;
            let is_equal = (0_u16..)
                .zip(name)
                .all(|(at, byte)| text.byte(at) == Some(*byte));
            is_equal.then_some(())
        };
        found().is_some()
    }

    /// The thread state of the calling thread, with the GIL or without.
    ///
    /// `PyGILState_GetThisThreadState` reads a thread-local. `_PyThreadState_GetCurrent` does not
    /// work: since 3.12 it is null while the GIL is released, as around `open`. Since 3.12 both
    /// follow subinterpreters; before, a thread inside one that it did not start in shows the
    /// frames that entered it.
    pub(crate) fn thread(&self) -> Option<u64> {
        // SAFETY: callable from any thread at any time; returns null before initialisation and
        // after finalisation.
        let thread = unsafe { (self.this_thread)() };
        if thread.is_null() {
            return None;
        }
        let thread = thread.expose_provenance() as u64;
        // A thread that finalizes the interpreter frees the thread states and frames of the others
        // before they learn of it.
        let finalizing = self.finalizing()?;
        (finalizing == 0 || finalizing == thread).then_some(thread)
    }

    /// Whether the calling thread is shutting the interpreter down.
    pub(crate) fn is_ended_here(&self) -> bool {
        // Checked at each call that unmaps memory, and usually decided by one word.
        let finalizing = self.finalizing().unwrap_or(0);
        finalizing != 0 && self.thread() == Some(finalizing)
    }

    fn finalizing(&self) -> Option<u64> {
        let at = self.layout.offsets.runtime_finalizing;
        let length = u64::from(at).checked_add(8)?;
        // SAFETY: `_PyRuntime` is a static of the interpreter.
        let direct = unsafe { Direct::trusting() };
        direct.span(self.state, length)?.word(at)
    }
}

/// The version: `Py_Version` since 3.11, before that parsed from the text.
///
/// # Safety
///
/// `address` must return the addresses of the symbols it is asked for.
unsafe fn version(address: &impl Fn(&CStr) -> Option<*const c_void>) -> Option<u32> {
    if let Some(version) = address(c"Py_Version") {
        // SAFETY: a constant of this type.
        let version = unsafe { version.cast::<c_ulong>().read() };
        return u32::try_from(version).ok();
    }
    let text = address(c"Py_GetVersion")?;
    // SAFETY: the function has had this type since Python 1.
    let text = unsafe {
        core::mem::transmute::<*const c_void, unsafe extern "C" fn() -> *const c_char>(text)
    };
    // SAFETY: callable at any time, even before the interpreter is initialized.
    let text = unsafe { text() };
    if text.is_null() {
        return None;
    }
    // SAFETY: a static text that ends with a null.
    let text = unsafe { CStr::from_ptr(text) };
    parse_version(text.to_bytes())
}

impl Layout {
    /// The offsets, if the running interpreter's types have the sizes in the table, and its own
    /// list of offsets, if any, agrees.
    fn checked<M: Memory>(
        mut self,
        memory: M,
        version: u32,
        state: u64,
        frame_type: u64,
    ) -> Result<Self, PythonRefusal> {
        let at = self.offsets;
        if at.has_debug_offsets() {
            let mut bytes = [0; DEBUG_SPAN];
            let read = memory
                .span(state, DEBUG_SPAN as u64)
                .and_then(|span| span.read(0, &mut bytes));
            let report = read.and_then(|()| PythonSelfReport::read(&bytes));
            let report = report.ok_or(PythonRefusal::LayoutDiffers)?;
            if report.version != u64::from(version) {
                return Err(PythonRefusal::LayoutDiffers);
            }
            if report.is_free_threaded {
                return Err(PythonRefusal::FreeThreaded);
            }
            self.offsets = at
                .as_reported(&report)
                .ok_or(PythonRefusal::LayoutDiffers)?;
        }
        let has_size = |kind: u64, size: u16| {
            let length = u64::from(at.type_basic_size).saturating_add(8);
            let kind = memory.span(kind, length).ok_or(PythonRefusal::Machine)?;
            let found = kind.word(at.type_basic_size);
            (found == Some(u64::from(size)))
                .then_some(())
                .ok_or(PythonRefusal::LayoutDiffers)
        };
        has_size(self.code_type, at.code_size)?;
        has_size(self.unicode_type, at.unicode_size)?;
        has_size(self.bytes_type, at.bytes_size)?;
        has_size(frame_type, at.frame_size)?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_decide_which_interpreter_it_is() {
        let nothing = |_: &CStr| core::ptr::null();
        // SAFETY: nothing is found, so nothing is called.
        let found = unsafe { Runtime::find(nothing) };
        assert_eq!(found.err(), Some(PythonRefusal::NoPython));

        let pypy = |name: &CStr| {
            let is_known = name == c"pypy_main_startup";
            if is_known {
                c"".as_ptr().cast()
            } else {
                core::ptr::null()
            }
        };
        // SAFETY: what is found is only compared with null.
        let found = unsafe { Runtime::find(pypy) };
        assert_eq!(found.err(), Some(PythonRefusal::PyPy));

        let version: c_ulong = 0x030c_01f0;
        let bare = |name: &CStr| {
            let version = (&raw const version).cast();
            if name == c"Py_Version" {
                version
            } else {
                core::ptr::null()
            }
        };
        // SAFETY: the version is valid; nothing else is found.
        let found = unsafe { Runtime::find(bare) };
        assert_eq!(found.err(), Some(PythonRefusal::SymbolMissing));
    }
}
