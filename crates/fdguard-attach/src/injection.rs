//! Borrows a stopped thread: makes system calls and the call of the library's function on it, and
//! returns it as it was. The order of the steps is what makes a killed tracer harmless.

use std::io;
use std::time::{Duration, Instant};

use libc::c_int;

use crate::memory::Memory;
use crate::pending::has_pending_signal;
use crate::ptrace::{self, Registers, Stop};
use crate::remote::{CODE_SIZE, CallPlan, Outcome, Report, SaveArea, Scratch, syscall_code};
use crate::restart::Interruption;
use crate::step::Step;
use crate::thread::{SeizedThread, ThreadError, pause};

/// How long a function may run. A thread that takes longer finishes alone.
const CALL_LIMIT: Duration = Duration::from_secs(10);
const SYS_MMAP: u64 = 9;
const SYS_MPROTECT: u64 = 10;
const SYS_MUNMAP: u64 = 11;
const READ_WRITE: u64 = 3;
const READ_EXECUTE: u64 = 5;
const PRIVATE_ANONYMOUS: u64 = 0x22;
/// Four words are written for the 27 bytes of code.
const PLANTED: usize = 32;

/// Where the code of one system call is put: the program's first instructions.
#[derive(Clone, Debug)]
pub(crate) struct CodePlace {
    pub(crate) address: u64,
    /// What belongs there.
    pub(crate) original: [u8; PLANTED],
}

/// A call that was begun.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) outcome: Result<Outcome, CallFailure>,
    pub(crate) stop: Duration,
    /// Memory that could not be unmapped.
    pub(crate) leftover: Option<Scratch>,
}

/// The function did not return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFailure {
    /// It faulted with this signal, and was left.
    Fault(c_int),
    /// It takes too long; the thread finishes alone.
    Limit,
}

/// A thread was returned before the function was called.
#[derive(Debug)]
pub(crate) struct AbortedCall {
    pub(crate) reason: Aborted,
    /// Memory that could not be unmapped.
    pub(crate) leftover: Option<Scratch>,
}

/// Why a thread was returned.
#[derive(Debug)]
pub(crate) enum Aborted {
    /// Something happened to the thread; another try may work.
    Thread(ThreadError),
    /// The kernel refuses memory in the process.
    NoMemory(c_int),
}

impl From<ThreadError> for Aborted {
    fn from(error: ThreadError) -> Self {
        Self::Thread(error)
    }
}

impl From<io::Error> for Aborted {
    fn from(error: io::Error) -> Self {
        Self::Thread(error.into())
    }
}

/// A stopped thread with what it needs to continue.
pub(crate) struct Injection<'a> {
    pid: u32,
    memory: &'a Memory,
    thread: SeizedThread,
    registers: Registers,
    interruption: Interruption,
    place: &'a CodePlace,
    save: SaveArea,
    /// What is mapped in the process.
    mapped: Option<Scratch>,
    on_step: &'a dyn Fn(Step),
}

impl<'a> Injection<'a> {
    /// Prepares a stopped thread. Its registers are not changed yet.
    pub(crate) fn new(
        pid: u32,
        memory: &'a Memory,
        thread: SeizedThread,
        place: &'a CodePlace,
        on_step: &'a dyn Fn(Step),
    ) -> Result<Self, ThreadError> {
        let registers = thread.registers()?;
        let signal = has_pending_signal(pid, thread.tid);
        let interruption = Interruption::judge(&registers, signal);
        Ok(Self {
            pid,
            memory,
            save: SaveArea::below(&registers),
            thread,
            registers,
            interruption,
            place,
            mapped: None,
            on_step,
        })
    }

    pub(crate) fn registers(&self) -> &Registers {
        &self.registers
    }

    pub(crate) fn tid(&self) -> u32 {
        self.thread.tid
    }

    /// Lets the thread go on with what it did.
    pub(crate) fn release(self) -> Result<Duration, ThreadError> {
        if self.interruption == Interruption::Eintr {
            let registers = self.interruption.at_stop(&self.registers);
            self.thread.set_registers(&registers)?;
        }
        self.thread.detach(0)
    }

    /// Maps memory, calls the function, and returns the thread.
    pub(crate) fn call(mut self, plan: &CallPlan<'_>) -> Result<Finished, AbortedCall> {
        let mut xstate = plan.xstate.to_vec();
        let plan = CallPlan {
            save: self.save,
            ..*plan
        };
        let scratch = match self.prepare(&plan) {
            Ok(scratch) => scratch,
            Err(aborted) => return Err(self.abort(aborted)),
        };
        let started = self.start(scratch);
        if let Err(error) = started {
            return Err(self.abort(error.into()));
        }
        let finished = match self.watch(scratch) {
            Ok(Ending::Done) => self.finish(scratch, &mut xstate, None),
            Ok(Ending::Fault(signal)) => self.finish(scratch, &mut xstate, Some(signal)),
            Ok(Ending::Limit) => self.leave(),
            Err(error) => return Err(self.abort(error.into())),
        };
        finished.map_err(|reason| AbortedCall {
            reason,
            leftover: Some(scratch),
        })
    }

    /// Unmaps memory that a call has left.
    pub(crate) fn sweep(mut self, leftovers: &[Scratch]) -> Result<Duration, AbortedCall> {
        let swept = self.plant().and_then(|()| {
            for scratch in leftovers {
                self.unmap(*scratch)?;
            }
            Ok(())
        });
        match swept {
            Ok(()) => self.give_back().map_err(|error| AbortedCall {
                reason: error.into(),
                leftover: None,
            }),
            Err(aborted) => Err(self.abort(aborted)),
        }
    }

    fn step(&self, step: Step) {
        (self.on_step)(step);
    }

    fn plant(&mut self) -> Result<(), Aborted> {
        let continued = self.interruption.continued(&self.registers);
        self.memory
            .write(self.save.address, &SaveArea::content(&continued))?;
        self.step(Step::Saved);
        let mut code = self.place.original;
        for (place, byte) in code.iter_mut().zip(syscall_code()) {
            *place = *byte;
        }
        self.write_code(&code)?;
        self.step(Step::Planted);
        Ok(())
    }

    fn write_code(&self, code: &[u8; PLANTED]) -> io::Result<()> {
        let (words, _) = code.as_chunks::<8>();
        let addresses = (self.place.address..).step_by(8);
        for (address, word) in addresses.zip(words) {
            ptrace::poke(self.thread.tid, address, u64::from_le_bytes(*word))?;
        }
        Ok(())
    }

    /// Makes a system call on the thread, which stops when it returns.
    fn syscall(&mut self, number: u64, arguments: [u64; 6]) -> Result<Result<u64, c_int>, Aborted> {
        let armed = self
            .save
            .syscall(&self.registers, self.place.address, number, arguments);
        self.thread.set_registers(&armed)?;
        self.step(Step::Armed);
        self.thread.run_to_syscall()?;
        self.thread.run_to_syscall()?;
        let result = self.thread.registers()?.rax.cast_signed();
        if (-4095..0).contains(&result) {
            return Ok(Err(c_int::try_from(-result).unwrap_or(0)));
        }
        Ok(Ok(result.cast_unsigned()))
    }

    fn prepare(&mut self, plan: &CallPlan<'_>) -> Result<Scratch, Aborted> {
        self.plant()?;
        let size = Scratch::size(plan);
        let arguments = [0, size as u64, READ_WRITE, PRIVATE_ANONYMOUS, u64::MAX, 0];
        let address = self.syscall(SYS_MMAP, arguments)?;
        let address = address.map_err(Aborted::NoMemory)?;
        let scratch = Scratch { address, size };
        self.mapped = Some(scratch);
        self.step(Step::Mapped);
        for (address, bytes) in scratch.content(plan) {
            self.memory.write(address, &bytes)?;
        }
        self.step(Step::Written);
        let arguments = [address, CODE_SIZE as u64, READ_EXECUTE, 0, 0, 0];
        let protected = self.syscall(SYS_MPROTECT, arguments)?;
        if let Err(errno) = protected {
            self.unmap(scratch)?;
            return Err(Aborted::NoMemory(errno));
        }
        self.step(Step::Protected);
        Ok(scratch)
    }

    fn start(&mut self, scratch: Scratch) -> Result<(), ThreadError> {
        self.memory.write(scratch.armed(), &1_u64.to_le_bytes())?;
        self.thread.set_registers(&scratch.start(&self.registers))?;
        self.step(Step::Entered);
        self.thread.resume(0)?;
        self.step(Step::Running);
        Ok(())
    }

    fn report(&self, scratch: Scratch) -> Report {
        Report::read(&self.memory.bytes_up_to(scratch.data(), Report::SIZE))
    }

    /// Waits until the function has returned.
    fn watch(&mut self, scratch: Scratch) -> Result<Ending, ThreadError> {
        let start = Instant::now();
        loop {
            if self.memory.word(scratch.data())? == 1 {
                self.step(Step::Done);
                return Ok(Ending::Done);
            }
            match self.thread.poll()? {
                None => {}
                Some(Stop::Ended) => return Err(ThreadError::Ended),
                Some(Stop::Event | Stop::Group | Stop::Syscall) => self.thread.resume(0)?,
                Some(Stop::Signal(signal)) if is_fault(signal) => {
                    return Ok(Ending::Fault(signal));
                }
                Some(Stop::Signal(libc::SIGSTOP)) => self.thread.resume(libc::SIGSTOP)?,
                // It came before the signals were blocked.
                Some(Stop::Signal(signal)) => return Err(ThreadError::Signal(signal)),
            }
            if start.elapsed() > CALL_LIMIT {
                return Ok(Ending::Limit);
            }
            pause();
        }
    }

    /// Returns the thread after the call.
    fn finish(
        mut self,
        scratch: Scratch,
        xstate: &mut [u8],
        fault: Option<c_int>,
    ) -> Result<Finished, Aborted> {
        let stopped = if fault.is_some() {
            Ok(())
        } else {
            self.thread.stop_again()
        };
        let report = self.report(scratch);
        let outcome = match fault {
            Some(signal) => Err(CallFailure::Fault(signal)),
            None => Ok(report.outcome.clone()),
        };
        let signal = match stopped {
            Ok(()) => None,
            Err(ThreadError::Signal(signal)) => Some(signal),
            Err(error) => return Err(error.into()),
        };
        let now = self.thread.registers()?;
        let is_inside = fault.is_some() || scratch.contains_code(now.rip);
        self.step(Step::Caught);
        if !is_inside {
            // It did not wait for us, and has restored itself.
            self.write_code(&self.place.original)?;
            let stop = self.thread.detach(signal.unwrap_or(0))?;
            let leftover = Some(scratch);
            return Ok(Finished {
                outcome,
                stop,
                leftover,
            });
        }
        ptrace::set_xstate(self.thread.tid, xstate)?;
        ptrace::set_signal_mask(self.thread.tid, report.old_mask)?;
        self.step(Step::ExtendedState);
        if let Some(signal) = signal {
            let stop = self.give_back_with(signal)?;
            return Ok(Finished {
                outcome,
                stop,
                leftover: Some(scratch),
            });
        }
        let (stop, leftover) = match self.unmap(scratch) {
            Ok(()) => (self.give_back()?, None),
            Err(Aborted::Thread(ThreadError::Signal(signal))) => {
                (self.give_back_with(signal)?, Some(scratch))
            }
            Err(aborted) => return Err(aborted),
        };
        Ok(Finished {
            outcome,
            stop,
            leftover,
        })
    }

    /// Leaves a thread to itself whose function does not return.
    fn leave(mut self) -> Result<Finished, Aborted> {
        match self.thread.stop_again() {
            Ok(()) => {
                self.write_code(&self.place.original)?;
                let stop = self.thread.detach(0)?;
                Ok(Finished {
                    outcome: Err(CallFailure::Limit),
                    stop,
                    leftover: None,
                })
            }
            // It is detached when this thread ends.
            Err(ThreadError::Slow) => Ok(Finished {
                outcome: Err(CallFailure::Limit),
                stop: self.thread.stopped_for(),
                leftover: None,
            }),
            Err(error) => Err(error.into()),
        }
    }

    fn unmap(&mut self, scratch: Scratch) -> Result<(), Aborted> {
        let arguments = [scratch.address, scratch.size as u64, 0, 0, 0, 0];
        // What cannot be unmapped stays.
        let _unmapped = self.syscall(SYS_MUNMAP, arguments)?;
        self.mapped = None;
        self.step(Step::Unmapped);
        Ok(())
    }

    /// Restores the registers after a system call, in a stop in which the kernel restarts calls.
    fn give_back(mut self) -> Result<Duration, ThreadError> {
        match self.thread.stop_again() {
            Ok(()) => self.give_back_with(0),
            Err(ThreadError::Signal(signal)) => self.give_back_with(signal),
            Err(error) => Err(error),
        }
    }

    fn give_back_with(self, signal: c_int) -> Result<Duration, ThreadError> {
        self.thread.set_registers(&self.final_registers(signal))?;
        if let Some(scratch) = self.mapped {
            // The next call finds it.
            drop(self.memory.write(scratch.left(), &1_u64.to_le_bytes()));
        }
        self.step(Step::Registers);
        self.write_code(&self.place.original)?;
        self.step(Step::Code);
        let on_step = self.on_step;
        let stop = self.thread.detach(signal)?;
        on_step(Step::Detached);
        Ok(stop)
    }

    /// A signal that arrived meanwhile makes EINTR right.
    fn final_registers(&self, signal: c_int) -> Registers {
        let signal = signal != 0 || has_pending_signal(self.pid, self.thread.tid);
        match (self.interruption, signal) {
            (Interruption::Eintr, true) => self.registers,
            (interruption, _) => interruption.at_stop(&self.registers),
        }
    }

    /// Returns the thread before the function was called.
    fn abort(self, reason: Aborted) -> AbortedCall {
        let leftover = self.mapped;
        let returned = match &reason {
            Aborted::Thread(ThreadError::Ended) => Err(ThreadError::Ended),
            Aborted::Thread(ThreadError::Signal(signal)) => self.give_back_with(*signal),
            _ => self.give_back(),
        };
        let reason = match returned {
            Ok(_) | Err(ThreadError::Ended) => reason,
            Err(error) => error.into(),
        };
        AbortedCall { reason, leftover }
    }
}

enum Ending {
    Done,
    Fault(c_int),
    Limit,
}

/// Signals that code sends itself. They are not blocked during the call.
fn is_fault(signal: c_int) -> bool {
    matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP | libc::SIGSYS
    )
}
