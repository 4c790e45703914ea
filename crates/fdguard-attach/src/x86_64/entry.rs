//! The way into a process and out of it, in three stops: memory is prepared in a short one, filled
//! while all threads run, used in the second, and unmapped in the third. What the second needs to
//! follow the stack is read between the first two, from the stack that the first one saw.

use std::cell::Cell;
use std::io;

use crate::step::Step;
use crate::x86_64::borrow::Search;
use crate::x86_64::examine::Examined;
use crate::x86_64::function_call::Finished;
use crate::x86_64::injection::{Aborted, AbortedCall, CodePlace, Injection};
use crate::x86_64::leftovers::is_free;
use crate::x86_64::remote::{CallPlan, Scratch};
use crate::x86_64::stack::Tables;
use crate::x86_64::stop_times::{StopCost, StopTimes};
use crate::x86_64::thread::ThreadError;
use crate::{Error, Refusal};

/// How often a step is begun again after a signal has arrived at the wrong moment.
const MOST_TRIES: u32 = 50;
const MOST_SWEEPS: u32 = 20;

/// One call, and what it leaves behind on its way.
pub(crate) struct Entry<'a> {
    examined: &'a Examined,
    tables: &'a mut Tables,
    place: &'a CodePlace,
    /// Memory to unmap at the end.
    leftovers: Vec<Scratch>,
    on_step: &'a dyn Fn(Step),
    pub(crate) stops: StopTimes,
    /// How often threads were stopped to find a safe one.
    pub(crate) tries: u32,
}

impl<'a> Entry<'a> {
    pub(crate) fn new(
        examined: &'a Examined,
        tables: &'a mut Tables,
        place: &'a CodePlace,
        leftovers: Vec<Scratch>,
        on_step: &'a dyn Fn(Step),
    ) -> Self {
        Self {
            examined,
            tables,
            place,
            leftovers,
            on_step,
            stops: StopTimes::default(),
            tries: 0,
        }
    }

    /// Makes the call; returns the thread that was borrowed.
    pub(crate) fn call(&mut self, plan: &CallPlan<'_>) -> Result<(Finished, u32), Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let scratch = self.prepare(plan)?;
            let mut search = Search::new(self.examined, self.tables, self.place, self.on_step);
            let found = search.safe_thread();
            self.stops.add_all(search.stops);
            self.tries += search.tries;
            let injection = found?;
            let thread = injection.tid();
            match injection.call(scratch, plan) {
                Ok(finished) => {
                    self.stops.add(finished.stop);
                    return Ok((finished, thread));
                }
                Err(aborted) => self.judge(aborted, tries)?,
            }
        }
    }

    /// Maps memory in the process and copies code, argument and library into it.
    fn prepare(&mut self, plan: &CallPlan<'_>) -> Result<Scratch, Error> {
        let seen = Cell::new(None);
        let scratch = self.retry(|injection| {
            seen.set(Some(*injection.registers()));
            injection.prepare(plan)
        })?;
        // From here on it is unmapped at the end, unless a thread is inside.
        self.leftovers.push(scratch);
        if let Some(registers) = seen.get() {
            self.tables.warm(&self.examined.memory, &registers);
        }
        for (address, bytes) in scratch.bulk(plan) {
            let written = self.examined.memory.write(address, bytes);
            written.map_err(Error::System)?;
        }
        (self.on_step)(Step::Copied);
        Ok(scratch)
    }

    /// Does something on any thread.
    fn retry<T>(
        &mut self,
        act: impl Fn(Injection<'_>) -> Result<(T, StopCost), AbortedCall>,
    ) -> Result<T, Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut search = Search::new(self.examined, self.tables, self.place, self.on_step);
            let injection = search.any_thread()?;
            match act(injection) {
                Ok((done, stop)) => {
                    self.stops.add(stop);
                    return Ok(done);
                }
                Err(aborted) => {
                    self.leftovers.extend(aborted.leftover);
                    self.judge(aborted, tries)?;
                }
            }
        }
    }

    /// Whether another try may work.
    fn judge(&mut self, aborted: AbortedCall, tries: u32) -> Result<(), Error> {
        self.stops.add(aborted.stop);
        if tries >= MOST_TRIES || !is_worth_another_try(&aborted.reason) {
            return Err(error_of(aborted.reason));
        }
        Ok(())
    }

    /// Unmaps what calls have left, this one or one of a tracer that was killed. It is tried a few
    /// times, because signals may interfere: the next call finds what remains.
    pub(crate) fn sweep(&mut self) {
        let memory = &self.examined.memory;
        self.leftovers.retain(|scratch| is_free(memory, *scratch));
        if self.leftovers.is_empty() {
            return;
        }
        for _attempt in 0..MOST_SWEEPS {
            let mut search = Search::new(self.examined, self.tables, self.place, self.on_step);
            let Ok(injection) = search.any_thread() else {
                return;
            };
            if let Ok(stop) = injection.sweep(&self.leftovers) {
                self.stops.add(stop);
                return;
            }
        }
    }
}

fn is_worth_another_try(reason: &Aborted) -> bool {
    match reason {
        Aborted::Thread(ThreadError::System(error)) => error.kind() != io::ErrorKind::NotFound,
        Aborted::Thread(ThreadError::Denied) | Aborted::NoMemory(_) => false,
        Aborted::Thread(_) => true,
    }
}

fn error_of(reason: Aborted) -> Error {
    match reason {
        Aborted::NoMemory(errno) => Error::NoResource {
            what: "memory",
            source: io::Error::from_raw_os_error(errno),
        },
        Aborted::Thread(ThreadError::Ended) => Error::Ended,
        Aborted::Thread(ThreadError::System(error)) => Error::System(error),
        Aborted::Thread(ThreadError::Denied) => Refusal::Denied.into(),
        Aborted::Thread(ThreadError::Group) => Refusal::Stopped.into(),
        Aborted::Thread(ThreadError::Slow | ThreadError::Signal(_) | ThreadError::Inside) => {
            Error::NoThread
        }
    }
}
