//! The call of the library's function on a borrowed thread, in memory that was prepared before.

use std::time::{Duration, Instant};

use libc::c_int;

use crate::step::Step;
use crate::x86_64::injection::{Aborted, AbortedCall, Injection};
use crate::x86_64::ptrace::{self, Stop};
use crate::x86_64::remote::{CallPlan, Outcome, Report, Scratch};
use crate::x86_64::stop_times::StopCost;
use crate::x86_64::thread::{ThreadError, pause};

/// How long a function may run. A thread that takes longer finishes alone.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// A call that was begun.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) outcome: Result<Outcome, CallFailure>,
    pub(crate) stop: StopCost,
}

/// The function did not return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFailure {
    /// It faulted with this signal, and was left.
    Fault(c_int),
    /// It takes too long; the thread finishes alone.
    Limit,
}

enum Ending {
    Done,
    Fault(c_int),
    Limit,
}

impl Injection<'_> {
    /// Calls the function, and returns the thread.
    pub(crate) fn call(
        mut self,
        scratch: Scratch,
        plan: &CallPlan<'_>,
    ) -> Result<Finished, AbortedCall> {
        self.mapped = Some(scratch);
        let started = ptrace::xstate(self.thread.tid)
            .map_err(ThreadError::from)
            .and_then(|xstate| self.start(scratch, plan, &xstate).map(|()| xstate));
        let mut xstate = match started {
            Ok(xstate) => xstate,
            Err(error) => return Err(self.abort(error.into())),
        };
        let finished = match self.watch(scratch) {
            Ok(Ending::Done) => self.finish(scratch, &mut xstate, None),
            Ok(Ending::Fault(signal)) => self.finish(scratch, &mut xstate, Some(signal)),
            Ok(Ending::Limit) => self.leave(),
            Err(error) => {
                // The code may have begun; this fails only if the thread has ended or runs.
                drop(ptrace::set_xstate(self.thread.tid, &mut xstate));
                return Err(self.abort(error.into()));
            }
        };
        finished.map_err(|reason| AbortedCall {
            reason,
            leftover: Some(scratch),
            stop: StopCost::default(),
        })
    }

    fn start(
        &mut self,
        scratch: Scratch,
        plan: &CallPlan<'_>,
        xstate: &[u8],
    ) -> Result<(), ThreadError> {
        self.save_registers()?;
        let head = scratch.head(plan, self.save, xstate);
        self.memory.write(scratch.data(), &head)?;
        self.step(Step::Filled);
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
                self.thread.count_wait();
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
        let signal = match stopped {
            Ok(()) => 0,
            Err(ThreadError::Signal(signal)) => signal,
            Err(error) => return Err(error.into()),
        };
        let now = self.thread.registers()?;
        let is_inside = fault.is_some() || scratch.contains_code(now.rip);
        self.step(Step::Caught);
        let stop = if is_inside {
            ptrace::set_xstate(self.thread.tid, xstate)?;
            ptrace::set_signal_mask(self.thread.tid, report.old_mask)?;
            self.step(Step::ExtendedState);
            self.give_back_with(signal)?
        } else {
            // It did not wait for us, and has restored itself: its call was made again, and is now
            // interrupted once more.
            self.thread.let_go(&now, signal)?
        };
        let outcome = fault.map_or(Ok(report.outcome), |signal| Err(CallFailure::Fault(signal)));
        Ok(Finished { outcome, stop })
    }

    /// Lets the thread go on with what it does now.
    fn let_go(self, signal: c_int) -> Result<StopCost, ThreadError> {
        let now = self.thread.registers()?;
        self.thread.let_go(&now, signal)
    }

    /// Leaves a thread to itself whose function does not return.
    fn leave(mut self) -> Result<Finished, Aborted> {
        let stop = match self.thread.stop_again() {
            Ok(()) => self.let_go(0)?,
            Err(ThreadError::Signal(signal)) => self.let_go(signal)?,
            // It is detached when this thread ends.
            Err(ThreadError::Slow) => self.thread.cost(),
            Err(error) => return Err(error.into()),
        };
        let outcome = Err(CallFailure::Limit);
        Ok(Finished { outcome, stop })
    }
}

/// Signals that code sends itself. They are not blocked during the call.
fn is_fault(signal: c_int) -> bool {
    matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP | libc::SIGSYS
    )
}
