//! The source of a trace by programs in the kernel: it sees every process, however it was built,
//! and changes none.
//!
//! A thread reads the events and applies them to tables (`records.rs`). Another one unwinds the
//! stacks (`unwind_thread.rs`); an event waits until its stack is there.

mod calls;
mod fd_table;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod gaps;
mod go_creators;
mod mount_path;
mod proc_fds;
mod process;
pub(crate) mod python;
mod reader;
mod records;
mod return_place;
mod shared;
mod stack_mode;
mod stack_store;
mod table_set;
mod unwind_file;
mod unwind_thread;
mod unwinder;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fdguard_core::event::CollectedEvents;
use fdguard_core::{Gap, TraceKey};
use fdguard_kernel::{KernelTracer, LoadRefusal, TracerScope};

#[cfg(feature = "fuzzing")]
pub use self::fuzzing::{fuzz_machine_code, fuzz_program};
#[cfg(feature = "fuzzing")]
pub use self::python::fuzz_captured_code;
use self::reader::{DrainThread, KernelReader};
use self::shared::KernelTrace;
pub(crate) use self::stack_store::StackStore;
use crate::go::GoProgram;
use crate::observed_trace::UntracedProgram;
use crate::source::{EventReader, TraceSource};
use crate::table::ProcessTable;
use crate::{BlindReason, Error};

/// Programs in the kernel that report what processes do. Dropping it removes them.
#[derive(Debug)]
pub struct KernelSource {
    trace: Arc<KernelTrace>,
    /// Stops before the trace ends.
    _drain: DrainThread,
    is_late: AtomicBool,
}

/// Events from here on belong to a program that is about to be started. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct LaunchWindow<'a>(&'a KernelSource);

impl KernelSource {
    /// Loads the programs.
    pub fn load(scope: TracerScope) -> Result<Self, LoadRefusal> {
        let tracer = KernelTracer::load(scope)?;
        let failed = |error: io::Error| LoadRefusal::Refused {
            program: "fdguard's reader".to_owned(),
            reason: error.to_string(),
        };
        let trace = Arc::new(KernelTrace::new(tracer));
        trace.start_unwinding().map_err(failed)?;
        Ok(Self {
            _drain: DrainThread::start(Arc::clone(&trace)).map_err(failed)?,
            trace,
            is_late: AtomicBool::new(scope == TracerScope::Host),
        })
    }

    /// Begins to trace a process that is running, and all it starts.
    pub fn follow(&self, pid: u32) -> io::Result<()> {
        self.is_late.store(true, Ordering::Release);
        self.trace.follow(pid)
    }

    /// The next program that this thread starts is traced from its first instruction on.
    pub(crate) fn launch_window(&self) -> io::Result<LaunchWindow<'_>> {
        self.trace.follow_own(true)?;
        Ok(LaunchWindow(self))
    }

    /// A program is about to be started: if it is Go or Python, the kernel knows it before its
    /// first instruction, so that its first goroutines and lines are known.
    pub(crate) fn expect_program(&self, path: &Path) {
        if let Some(program) = GoProgram::read(path) {
            self.trace.expect_go(&program);
        }
        if let Some(file) = python::find_in_program(path) {
            self.trace.add_python_file(&file);
        }
    }

    /// Whether it has records of this program.
    pub(crate) fn has(&self, key: TraceKey) -> bool {
        self.trace.records().has(key)
    }

    /// The recording is about to be stopped: nothing more is read until then.
    pub(crate) fn end_soon(&self) {
        self.trace.end_soon();
    }

    /// Ends the recording. What was recorded can still be read.
    pub fn stop(&self) {
        self.trace.stop();
    }
}

impl Drop for LaunchWindow<'_> {
    fn drop(&mut self) {
        // Events of fdguard itself are ignored.
        drop(self.0.trace.follow_own(false));
    }
}

impl Drop for KernelSource {
    fn drop(&mut self) {
        self.stop();
    }
}

impl TraceSource for KernelSource {
    fn backend(&self) -> &'static str {
        "ebpf"
    }

    fn collects(&self) -> CollectedEvents {
        // Of the uses only those that failed are reported, which proves nothing about others.
        CollectedEvents::default()
    }

    fn blind(&self) -> Option<BlindReason> {
        None
    }

    fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Acquire)
    }

    fn processes(&self) -> Result<Vec<TraceKey>, Error> {
        // A program may have come and gone since the last read.
        self.trace.drain();
        Ok(self.trace.records().keys())
    }

    fn events(&self, key: TraceKey) -> io::Result<Box<dyn EventReader>> {
        Ok(Box::new(KernelReader::new(Arc::clone(&self.trace), key)))
    }

    fn table(&self, key: TraceKey) -> io::Result<Option<ProcessTable>> {
        Ok(self.trace.table(key))
    }

    fn is_outlived(&self, _key: TraceKey) -> bool {
        false
    }

    fn untraced(&self, pid: u32) -> Option<UntracedProgram> {
        Some(UntracedProgram {
            comm: fdguard_proc::process::name(pid).unwrap_or_default(),
            blind: BlindReason::NotFollowed,
        })
    }

    fn is_running(&self, key: TraceKey) -> bool {
        !self.trace.records().is_over(key)
    }

    fn most_processes(&self) -> usize {
        4096
    }

    fn gaps(&self) -> Vec<Gap> {
        self.trace.gaps()
    }

    fn remove(&self, key: TraceKey) {
        self.trace.records().remove(key);
    }
}
