//! A thread of the process that is seized, and stopped for a moment.

use std::io;
use std::num::NonZeroU64;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fdguard_proc::stat::ProcStat;
use fdguard_proc::status::number_of;
use libc::c_int;

use crate::x86_64::ptrace::{self, Registers, Stop};
use crate::x86_64::restart::Interruption;
use crate::x86_64::stop_times::StopCost;

/// How long a thread may take to stop. It does its own work until then, or waits for a processor;
/// one that takes longer is in the kernel for something else. One that is given up is detached when
/// the tracing thread ends, and some calls return EINTR then.
const STOP_LIMIT: Duration = Duration::from_secs(3);
/// How often a stop is looked for: waiting for it has no limit. Sleeping leaves the processor
/// to the other thread; yielding would give it to anybody for a whole time slice.
const PAUSE: Duration = Duration::from_micros(10);

/// Lets this thread sleep for microseconds (usually the kernel adds fifty to save power), and puts
/// it before others if it may: a stopped thread waits for this one.
pub(crate) fn hurry() {
    // Otherwise stops take a little longer.
    let _unchanged = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
    let _unchanged = rustix::process::setpriority_process(None, -20);
}

/// Waits a little for the other process.
pub(crate) fn pause() {
    sleep(PAUSE);
}

/// A seized thread. Dropping it detaches: what the thread does then ends by itself.
#[derive(Debug)]
pub(crate) struct SeizedThread {
    pub(crate) tid: u32,
    is_stopped: bool,
    /// Whether it is in a stop that was asked for, where the kernel restarts calls.
    is_interrupted: bool,
    stopped_at: Instant,
    /// How often it was waited for since.
    waits: u32,
}

/// A thread did not do what was asked.
#[derive(Debug)]
pub(crate) enum ThreadError {
    /// It has ended.
    Ended,
    /// It may not be traced.
    Denied,
    /// It has not stopped in time.
    Slow,
    /// A signal has arrived, and is to be delivered.
    Signal(c_int),
    /// The process is stopped as a whole.
    Group,
    /// It has not yet left the code of a tracer that was killed.
    Inside,
    System(io::Error),
}

impl From<io::Error> for ThreadError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH | libc::ECHILD) => Self::Ended,
            Some(libc::EPERM | libc::EACCES) => Self::Denied,
            _ => Self::System(error),
        }
    }
}

impl SeizedThread {
    /// Seizes a thread and stops it.
    pub(crate) fn stop(tid: u32, on_seized: impl FnOnce()) -> Result<Self, ThreadError> {
        ptrace::seize(tid).map_err(|error| match ThreadError::from(error) {
            // The kernel denies threads that end, too.
            ThreadError::Denied if is_ending(tid) => ThreadError::Ended,
            error => error,
        })?;
        let mut thread = Self {
            tid,
            is_stopped: false,
            is_interrupted: false,
            stopped_at: Instant::now(),
            waits: 0,
        };
        on_seized();
        thread.stopped_at = Instant::now();
        ptrace::interrupt(tid)?;
        loop {
            match thread.wait(STOP_LIMIT)? {
                Stop::Event => return Ok(thread),
                // Any stop takes the place of the one that was asked for.
                Stop::Signal(signal) => {
                    thread.interrupt()?;
                    thread.resume(signal)?;
                }
                Stop::Syscall => {
                    thread.interrupt()?;
                    thread.resume(0)?;
                }
                Stop::Group => return Err(ThreadError::Group),
                Stop::Ended => return Err(ThreadError::Ended),
            }
        }
    }

    /// How long it has not done its own work.
    pub(crate) fn cost(&self) -> StopCost {
        StopCost {
            time: self.stopped_at.elapsed(),
            waits: self.waits,
        }
    }

    /// It was waited for in another way than by its stops.
    pub(crate) fn count_wait(&mut self) {
        self.waits += 1;
    }

    /// Waits until it stops.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Stop, ThreadError> {
        let start = Instant::now();
        loop {
            if let Some(stop) = self.poll()? {
                self.count_wait();
                return Ok(stop);
            }
            if start.elapsed() > limit {
                return Err(ThreadError::Slow);
            }
            pause();
        }
    }

    /// Whether it has stopped.
    pub(crate) fn poll(&mut self) -> Result<Option<Stop>, ThreadError> {
        let stop = ptrace::poll_stop(self.tid)?;
        if let Some(stop) = stop {
            self.is_stopped = stop != Stop::Ended;
            self.is_interrupted = matches!(stop, Stop::Event | Stop::Group);
            if stop == Stop::Ended && !is_own_child(self.tid) {
                ptrace::take_end(self.tid)?;
            }
        }
        Ok(stop)
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    pub(crate) fn interrupt(&self) -> Result<(), ThreadError> {
        Ok(ptrace::interrupt(self.tid)?)
    }

    /// Stops it again. If it is about to make a system call, it stops after it: interruptions do
    /// not end the calls that are made here.
    pub(crate) fn stop_again(&mut self) -> Result<(), ThreadError> {
        self.interrupt()?;
        if self.is_stopped {
            self.resume(0)?;
        }
        loop {
            match self.wait(STOP_LIMIT)? {
                Stop::Event | Stop::Group => return Ok(()),
                Stop::Syscall => {
                    self.interrupt()?;
                    self.resume(0)?;
                }
                Stop::Signal(signal) => return Err(ThreadError::Signal(signal)),
                Stop::Ended => return Err(ThreadError::Ended),
            }
        }
    }

    pub(crate) fn resume(&mut self, signal: c_int) -> Result<(), ThreadError> {
        ptrace::resume(self.tid, signal)?;
        self.runs();
        Ok(())
    }

    fn runs(&mut self) {
        self.is_stopped = false;
        self.is_interrupted = false;
    }

    /// Runs until it enters or leaves a system call.
    pub(crate) fn run_to_syscall(&mut self) -> Result<(), ThreadError> {
        loop {
            ptrace::resume_to_syscall(self.tid)?;
            self.runs();
            match self.wait(STOP_LIMIT)? {
                Stop::Syscall => return Ok(()),
                Stop::Event | Stop::Group => {}
                Stop::Signal(signal) => return Err(ThreadError::Signal(signal)),
                Stop::Ended => return Err(ThreadError::Ended),
            }
        }
    }

    pub(crate) fn registers(&self) -> Result<Registers, ThreadError> {
        Ok(ptrace::registers(self.tid)?)
    }

    pub(crate) fn set_registers(&self, registers: &Registers) -> Result<(), ThreadError> {
        Ok(ptrace::set_registers(self.tid, registers)?)
    }

    /// Lets it go on with what it was stopped in: a call that was interrupted is made again.
    pub(crate) fn let_go(self, now: &Registers, signal: c_int) -> Result<StopCost, ThreadError> {
        let interruption = Interruption::judge(now);
        if interruption == Interruption::Eintr {
            self.set_registers(&interruption.at_stop(now))?;
        }
        self.detach(signal)
    }

    /// Lets it go, with a signal that was about to be delivered.
    pub(crate) fn detach(mut self, signal: c_int) -> Result<StopCost, ThreadError> {
        self.is_stopped = false;
        ptrace::detach(self.tid, signal)?;
        Ok(self.cost())
    }
}

/// This thread, which the kernel names as the tracer of those that it has seized.
pub(crate) fn own_tid() -> u64 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs()
        .into()
}

/// Whether this is a process that this one has started: whoever started it waits for its end.
fn is_own_child(tid: u32) -> bool {
    let status = std::fs::read(format!("/proc/{tid}/status")).unwrap_or_default();
    number_of(&status, b"Tgid") == Some(tid.into())
        && number_of(&status, b"PPid") == Some(std::process::id().into())
}

/// Whether a thread ends, or is gone. One that was killed while it was stopped is traced by this
/// thread until it has ended.
fn is_ending(tid: u32) -> bool {
    let read = |name| std::fs::read(format!("/proc/{tid}/{name}")).unwrap_or_default();
    let tracer = number_of(&read("status"), b"TracerPid");
    tracer == Some(own_tid()) || ProcStat::parse(&read("stat")).is_none_or(|stat| stat.is_ending())
}

impl Drop for SeizedThread {
    fn drop(&mut self) {
        // One that is not stopped is detached when the tracing thread ends.
        if self.is_stopped {
            drop(ptrace::detach(self.tid, 0));
        }
    }
}
