//! Borrows a stopped thread: makes system calls on it, and returns it as it was. The order of the
//! steps is what makes a killed tracer harmless.

use std::io;

use libc::c_int;

use crate::step::Step;
use crate::x86_64::memory::Memory;
use crate::x86_64::pending::has_pending_signal;
use crate::x86_64::ptrace::{self, Registers};
use crate::x86_64::remote::{CODE_SIZE, CallPlan, SaveArea, Scratch, USUAL_ADDRESS, syscall_code};
use crate::x86_64::restart::Interruption;
use crate::x86_64::stop_times::StopCost;
use crate::x86_64::thread::{SeizedThread, ThreadError};

const SYS_MMAP: u64 = 9;
const SYS_MPROTECT: u64 = 10;
const SYS_MUNMAP: u64 = 11;
/// What is called by code at the program's entry.
pub(crate) const MEMORY_CALLS: [u64; 3] = [SYS_MMAP, SYS_MPROTECT, SYS_MUNMAP];
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

impl CodePlace {
    /// Whether a thread is in the code of a tracer that was killed.
    fn contains(&self, address: u64) -> bool {
        (self.address..self.address + PLANTED as u64).contains(&address)
    }
}

/// A thread was returned before the function was called.
#[derive(Debug)]
pub(crate) struct AbortedCall {
    pub(crate) reason: Aborted,
    /// Memory that is still mapped.
    pub(crate) leftover: Option<Scratch>,
    /// How long the thread was stopped, if that is known.
    pub(crate) stop: StopCost,
}

impl AbortedCall {
    /// The thread was lost after what was to be done.
    fn after(error: ThreadError) -> Self {
        Self {
            reason: error.into(),
            leftover: None,
            stop: StopCost::default(),
        }
    }
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
    pub(crate) memory: &'a Memory,
    pub(crate) thread: SeizedThread,
    pub(crate) registers: Registers,
    interruption: Interruption,
    /// Whether a signal was pending when it was stopped.
    has_signal: bool,
    place: &'a CodePlace,
    pub(crate) save: SaveArea,
    /// Whether the code of a system call is in the program.
    is_planted: bool,
    /// What was mapped for a call, and is still there.
    pub(crate) mapped: Option<Scratch>,
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
        if place.contains(registers.rip) {
            return Err(ThreadError::Inside);
        }
        let has_signal = has_pending_signal(pid, thread.tid);
        let interruption = Interruption::judge(&registers);
        Ok(Self {
            memory,
            save: SaveArea::below(&registers),
            thread,
            registers,
            interruption,
            has_signal,
            place,
            is_planted: false,
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
    pub(crate) fn release(self) -> Result<StopCost, ThreadError> {
        self.thread.let_go(&self.registers, 0)
    }

    /// Maps memory for a call with its code in it, and returns the thread.
    pub(crate) fn prepare(
        mut self,
        plan: &CallPlan<'_>,
    ) -> Result<(Scratch, StopCost), AbortedCall> {
        match self.map(plan) {
            Ok(scratch) => {
                // Nobody is inside: it need not be marked.
                self.mapped = None;
                let returned = self.give_back();
                returned
                    .map(|stop| (scratch, stop))
                    .map_err(|error| AbortedCall {
                        reason: error.into(),
                        leftover: Some(scratch),
                        stop: StopCost::default(),
                    })
            }
            Err(aborted) => Err(self.abort(aborted)),
        }
    }

    /// Unmaps memory that a call has left.
    pub(crate) fn sweep(mut self, leftovers: &[Scratch]) -> Result<StopCost, AbortedCall> {
        let swept = self.plant().and_then(|()| {
            for scratch in leftovers {
                self.unmap(*scratch)?;
            }
            Ok(())
        });
        match swept {
            Ok(()) => self.give_back().map_err(AbortedCall::after),
            Err(aborted) => Err(self.abort(aborted)),
        }
    }

    pub(crate) fn step(&self, step: Step) {
        (self.on_step)(step);
    }

    /// Writes the registers where the code finds them with which the thread goes on.
    pub(crate) fn save_registers(&self) -> io::Result<()> {
        let continued = self
            .interruption
            .continued(&self.registers, self.has_signal);
        self.memory
            .write(self.save.address, &SaveArea::content(&continued))?;
        self.step(Step::Saved);
        Ok(())
    }

    fn plant(&mut self) -> Result<(), Aborted> {
        self.save_registers()?;
        self.is_planted = true;
        let mut code = self.place.original;
        for (place, byte) in code.iter_mut().zip(syscall_code()) {
            *place = *byte;
        }
        self.write_code(self.place.address, &code)?;
        self.step(Step::Planted);
        Ok(())
    }

    /// Writes code that the process itself cannot write.
    fn write_code(&self, address: u64, code: &[u8]) -> io::Result<()> {
        let (words, _) = code.as_chunks::<8>();
        for (address, word) in (address..).step_by(8).zip(words) {
            ptrace::poke(self.thread.tid, address, u64::from_le_bytes(*word))?;
        }
        Ok(())
    }

    /// Makes a system call on the thread, which stops when it returns, in a stop in which it can be
    /// given back.
    fn syscall(&mut self, number: u64, arguments: [u64; 6]) -> Result<Result<u64, c_int>, Aborted> {
        let armed = self
            .save
            .syscall(&self.registers, self.place.address, number, arguments);
        self.thread.set_registers(&armed)?;
        self.step(Step::Armed);
        self.thread.run_to_syscall()?;
        self.thread.stop_again()?;
        let result = self.thread.registers()?.rax.cast_signed();
        if (-4095..0).contains(&result) {
            return Ok(Err(c_int::try_from(-result).unwrap_or(0)));
        }
        Ok(Ok(result.cast_unsigned()))
    }

    fn map(&mut self, plan: &CallPlan<'_>) -> Result<Scratch, Aborted> {
        self.plant()?;
        let size = Scratch::size(plan);
        let (hint, flags) = (USUAL_ADDRESS, PRIVATE_ANONYMOUS);
        let arguments = [hint, size as u64, READ_EXECUTE, flags, u64::MAX, 0];
        let address = self.syscall(SYS_MMAP, arguments)?;
        let address = address.map_err(Aborted::NoMemory)?;
        let scratch = Scratch { address, size };
        self.mapped = Some(scratch);
        self.step(Step::Mapped);
        for (address, mut bytes) in scratch.code(plan) {
            // Some kernels let only the tracer's own request write here.
            if self.memory.write(address, &bytes).is_err() {
                bytes.resize(bytes.len().next_multiple_of(8), 0);
                self.write_code(address, &bytes)?;
            }
        }
        self.step(Step::Written);
        self.make_writable(scratch)?;
        Ok(scratch)
    }

    /// Makes all of the memory writable but its code.
    fn make_writable(&mut self, scratch: Scratch) -> Result<(), Aborted> {
        let size = (scratch.size - CODE_SIZE) as u64;
        let start = scratch.address + CODE_SIZE as u64;
        let made = self.syscall(SYS_MPROTECT, [start, size, READ_WRITE, 0, 0, 0])?;
        if let Err(errno) = made {
            self.unmap(scratch)?;
            return Err(Aborted::NoMemory(errno));
        }
        self.step(Step::Protected);
        Ok(())
    }

    fn unmap(&mut self, scratch: Scratch) -> Result<(), Aborted> {
        let arguments = [scratch.address, scratch.size as u64, 0, 0, 0, 0];
        // What cannot be unmapped stays.
        let _unmapped = self.syscall(SYS_MUNMAP, arguments)?;
        self.mapped = None;
        self.step(Step::Unmapped);
        Ok(())
    }

    /// Restores the registers, in a stop in which the kernel restarts calls.
    fn give_back(mut self) -> Result<StopCost, ThreadError> {
        if self.thread.is_interrupted() {
            return self.give_back_with(0);
        }
        match self.thread.stop_again() {
            Ok(()) => self.give_back_with(0),
            Err(ThreadError::Signal(signal)) => self.give_back_with(signal),
            Err(error) => Err(error),
        }
    }

    /// The same in such a stop.
    pub(crate) fn give_back_with(self, signal: c_int) -> Result<StopCost, ThreadError> {
        let registers = self.interruption.at_stop(&self.registers);
        self.thread.set_registers(&registers)?;
        if let Some(scratch) = self.mapped {
            // It can be unmapped from now on.
            drop(self.memory.write(scratch.left(), &1_u64.to_le_bytes()));
        }
        self.step(Step::Registers);
        self.restore_code()?;
        let on_step = self.on_step;
        let stop = self.thread.detach(signal)?;
        on_step(Step::Detached);
        Ok(stop)
    }

    /// Restores the program's first instructions.
    fn restore_code(&self) -> io::Result<()> {
        if self.is_planted {
            self.write_code(self.place.address, &self.place.original)?;
            self.step(Step::Code);
        }
        Ok(())
    }

    /// Returns the thread before the function was called.
    pub(crate) fn abort(self, reason: Aborted) -> AbortedCall {
        let leftover = self.mapped;
        let returned = match &reason {
            Aborted::Thread(ThreadError::Ended) => Err(ThreadError::Ended),
            Aborted::Thread(ThreadError::Signal(signal)) => self.give_back_with(*signal),
            _ => self.give_back(),
        };
        let (reason, stop) = match returned {
            Ok(stop) => (reason, stop),
            Err(ThreadError::Ended) => (reason, StopCost::default()),
            Err(error) => (error.into(), StopCost::default()),
        };
        AbortedCall {
            reason,
            leftover,
            stop,
        }
    }
}
