//! Finds a thread that can be borrowed now, and stops it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Error;
use crate::step::Step;
use crate::x86_64::candidates::{Candidate, Fitness, candidates};
use crate::x86_64::examine::{Examined, check_threads};
use crate::x86_64::fate::{Fate, fate};
use crate::x86_64::injection::{CodePlace, Injection};
use crate::x86_64::judge::{Obstacle, Waiting, judge};
use crate::x86_64::ptrace::Registers;
use crate::x86_64::stack::{Tables, Walk};
use crate::x86_64::stop_times::StopTimes;
use crate::x86_64::thread::{SeizedThread, ThreadError};

/// How long threads are looked at before the call is refused.
const SEARCH_LIMIT: Duration = Duration::from_secs(2);
/// With more threads than this, the others are left alone.
const MOST_THREADS: usize = 64;
const CODE_SEGMENT: u64 = 0x33;

/// Looks for a thread.
pub(crate) struct Search<'a> {
    pub(crate) examined: &'a Examined,
    pub(crate) tables: &'a mut Tables,
    pub(crate) place: &'a CodePlace,
    pub(crate) on_step: &'a dyn Fn(Step),
    pub(crate) tries: u32,
    /// The stops of threads that were let go.
    pub(crate) stops: StopTimes,
    start: Instant,
    obstacle: Option<Obstacle>,
}

enum Attempt<'a> {
    Safe(Box<Injection<'a>>),
    Unsafe(Obstacle),
    Unavailable,
}

impl<'a> Search<'a> {
    pub(crate) fn new(
        examined: &'a Examined,
        tables: &'a mut Tables,
        place: &'a CodePlace,
        on_step: &'a dyn Fn(Step),
    ) -> Self {
        Self {
            examined,
            tables,
            place,
            on_step,
            tries: 0,
            stops: StopTimes::default(),
            start: Instant::now(),
            obstacle: None,
        }
    }

    /// A stopped thread that is proven safe.
    pub(crate) fn safe_thread(&mut self) -> Result<Injection<'a>, Error> {
        let mut pause = Duration::from_millis(1);
        let mut worst = Fitness::Runs;
        while self.start.elapsed() < SEARCH_LIMIT {
            self.check_fate()?;
            check_threads(self.examined.key.pid)?;
            self.tables.refresh().map_err(Error::System)?;
            for candidate in self.candidates(worst)? {
                match self.attempt(candidate)? {
                    Attempt::Safe(injection) => return Ok(*injection),
                    Attempt::Unsafe(obstacle) => self.obstacle = Some(obstacle),
                    Attempt::Unavailable => {}
                }
                if self.start.elapsed() > SEARCH_LIMIT {
                    break;
                }
            }
            if worst == Fitness::StartsOver {
                sleep(pause);
                pause = (pause * 3 / 2).min(Duration::from_millis(17));
            }
            worst = Fitness::StartsOver;
        }
        Err(self.failure())
    }

    /// A stopped thread for system calls only, which need no lock.
    pub(crate) fn any_thread(&mut self) -> Result<Injection<'a>, Error> {
        while self.start.elapsed() < SEARCH_LIMIT {
            self.check_fate()?;
            for candidate in self.candidates(Fitness::StartsOver)? {
                let stopped = self.stop(candidate.tid);
                match stopped.and_then(|thread| self.inject(thread)) {
                    Ok(injection) if injection.registers().cs == CODE_SEGMENT => {
                        return Ok(injection);
                    }
                    Ok(injection) => drop(self.let_go(injection, "32-bit code")?),
                    Err(error) => drop(unavailable(error)?),
                }
            }
            sleep(Duration::from_millis(5));
        }
        Err(self.failure())
    }

    fn check_fate(&self) -> Result<(), Error> {
        match fate(self.examined.key, &self.examined.memory) {
            Fate::Runs => Ok(()),
            Fate::Ended => Err(Error::Ended),
            Fate::Executed => Err(Error::Executed),
        }
    }

    fn failure(&self) -> Error {
        match &self.obstacle {
            Some(obstacle) => Error::NoSafeThread {
                function: obstacle.function.clone(),
                tries: self.tries,
            },
            None => Error::NoThread,
        }
    }

    fn candidates(&self, worst: Fitness) -> Result<Vec<Candidate>, Error> {
        let mut found = candidates(self.examined.key.pid).map_err(|_gone| Error::Ended)?;
        found.retain(|candidate| candidate.fitness <= worst);
        found.truncate(MOST_THREADS);
        Ok(found)
    }

    fn stop(&self, tid: u32) -> Result<SeizedThread, ThreadError> {
        let thread = SeizedThread::stop(tid, || (self.on_step)(Step::Seized))?;
        (self.on_step)(Step::Stopped);
        Ok(thread)
    }

    fn inject(&self, thread: SeizedThread) -> Result<Injection<'a>, ThreadError> {
        let (pid, memory) = (self.examined.key.pid, &self.examined.memory);
        Injection::new(pid, memory, thread, self.place, self.on_step)
    }

    /// Looks at one thread. If tables are missing it is let go, they are read, and it is stopped
    /// once more.
    fn attempt(&mut self, candidate: Candidate) -> Result<Attempt<'a>, Error> {
        for _rehearsal in 0..8 {
            self.tries += 1;
            let stopped = self.stop(candidate.tid);
            let injection = match stopped.and_then(|thread| self.inject(thread)) {
                Ok(injection) => injection,
                Err(error) => return unavailable(error),
            };
            let registers = *injection.registers();
            if registers.cs != CODE_SEGMENT {
                return self.let_go(injection, "32-bit code");
            }
            match self.tables.walk(&self.examined.memory, &registers) {
                Walk::Missing(_) => {
                    match injection.release() {
                        Ok(stop) => self.stops.add(stop),
                        Err(error) => return unavailable(error),
                    }
                    self.tables.warm(&self.examined.memory, &registers);
                }
                Walk::Whole { frames, end } => {
                    return match judge(&frames, end, waiting(&registers)) {
                        Ok(()) => {
                            (self.on_step)(Step::Judged);
                            Ok(Attempt::Safe(Box::new(injection)))
                        }
                        Err(obstacle) => self.let_go(injection, &obstacle.function),
                    };
                }
            }
        }
        Ok(Attempt::Unavailable)
    }

    fn let_go(&mut self, injection: Injection<'a>, function: &str) -> Result<Attempt<'a>, Error> {
        match injection.release() {
            Ok(stop) => {
                self.stops.add(stop);
                let function = function.to_owned();
                Ok(Attempt::Unsafe(Obstacle { function }))
            }
            Err(error) => unavailable(error),
        }
    }
}

/// The system call that a thread was stopped in.
fn waiting(registers: &Registers) -> Waiting {
    const FUTEX_COMMAND: u64 = 0x7f;
    const FUTEX_WAIT_BITSET: u64 = 9;
    if registers.rax.cast_signed() >= 0 {
        return Waiting::Other;
    }
    match registers.orig_rax {
        0 | 1 | 17..=20 => Waiting::InputOutput,
        202 | 219 if registers.rsi & FUTEX_COMMAND == FUTEX_WAIT_BITSET => Waiting::Condition,
        _ => Waiting::Other,
    }
}

fn unavailable<'a>(error: ThreadError) -> Result<Attempt<'a>, Error> {
    match error {
        ThreadError::System(error) => Err(Error::System(error)),
        ThreadError::Denied => Err(Error::Refused(crate::Refusal::Denied)),
        // The thread has ended, does not stop, or is stopped by a signal.
        _ => Ok(Attempt::Unavailable),
    }
}
