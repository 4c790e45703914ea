//! A process that can be entered, and calls inside it.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;

use fdguard_proc::ProcKey;

use crate::step::Step;
use crate::x86_64::entry::Entry;
use crate::x86_64::examine::{Examined, check_threads, examine};
use crate::x86_64::fate::{Fate, fate};
use crate::x86_64::function_call::{CallFailure, Finished};
use crate::x86_64::image::Image;
use crate::x86_64::leftovers::{code_place, scratch_memory, wait_until_left};
use crate::x86_64::lock::EntryLock;
use crate::x86_64::remote::{CallPlan, Outcome};
use crate::x86_64::stack::Tables;
use crate::x86_64::stop_times::StopTimes;
use crate::x86_64::thread::hurry;
use crate::{Error, Refusal, RemoteCall};

/// A running process, examined and not yet touched.
pub struct Target {
    examined: Examined,
    tables: Mutex<Tables>,
}

/// What is asked of the process.
#[derive(Clone, Copy)]
struct Request<'a> {
    library: &'a [u8],
    entry: &'a CStr,
    argument: &'a [u8],
    on_step: &'a (dyn Fn(Step) + Sync),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("key", &self.examined.key)
            .finish_non_exhaustive()
    }
}

impl Target {
    /// What the name of a memory file begins with that holds an injected library; a hash of its
    /// bytes follows.
    pub const LIBRARY_PREFIX: &str = "fdguard-";

    /// Looks at a process without stopping it.
    pub fn examine(pid: u32) -> Result<Self, Refusal> {
        let examined = examine(pid)?;
        let tables = Tables::new(pid, examined.loader, examined.libc);
        Ok(Self {
            examined,
            tables: Mutex::new(tables),
        })
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.examined.key.pid
    }

    /// Loads `library` (the bytes of a shared object), unless it is loaded already, and calls its
    /// function `int entry(const void *argument, size_t size)` with a copy of `argument`.
    pub fn call(&self, library: &[u8], entry: &CStr, argument: &[u8]) -> Result<RemoteCall, Error> {
        self.call_observed(library, entry, argument, &|_step| {})
    }

    /// The same, reporting each step.
    #[doc(hidden)]
    pub fn call_observed(
        &self,
        library: &[u8],
        entry: &CStr,
        argument: &[u8],
        on_step: &(dyn Fn(Step) + Sync),
    ) -> Result<RemoteCall, Error> {
        let request = Request {
            library,
            entry,
            argument,
            on_step,
        };
        // The kernel detaches what is left when the tracing thread ends, whatever has happened.
        thread::scope(|scope| {
            let tracer = scope.spawn(|| {
                hurry();
                self.locked_call(request)
            });
            tracer.join().unwrap_or_else(|_panic| {
                Err(Error::System(io::Error::other(
                    "the tracing thread panicked",
                )))
            })
        })
    }

    fn locked_call(&self, request: Request<'_>) -> Result<RemoteCall, Error> {
        let pid = self.pid();
        let lock = EntryLock::take(pid).map_err(|_gone| Error::Ended)?;
        let Some(_lock) = lock else {
            return Err(Refusal::Busy.into());
        };
        if ProcKey::read(pid).ok() != Some(self.examined.key) {
            return Err(Refusal::Gone.into());
        }
        check_threads(pid)?;
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.enter(&mut tables, request);
        result.map_err(|error| self.real_reason(error))
    }

    /// A process that ends or executes another program fails whatever is tried meanwhile.
    fn real_reason(&self, error: Error) -> Error {
        let Examined { key, memory, .. } = &self.examined;
        match fate(*key, memory) {
            Fate::Ended => Error::Ended,
            Fate::Executed => Error::Executed,
            Fate::Runs => match error {
                // One of its threads is gone that was needed.
                Error::System(error) if error.raw_os_error() == Some(libc::ESRCH) => Error::Ended,
                error => error,
            },
        }
    }

    fn enter(&self, tables: &mut Tables, request: Request<'_>) -> Result<RemoteCall, Error> {
        tables.refresh().map_err(Error::System)?;
        let (place, is_leftover) =
            code_place(&self.examined, tables.regions()).map_err(Error::System)?;
        if is_leftover {
            wait_until_left(self.pid());
            // The call that a thread made there may have mapped memory.
            tables.refresh().map_err(Error::System)?;
        }
        let leftovers = scratch_memory(&self.examined.memory, tables.regions())?;
        let name = library_name(request.library);
        let directory = descriptor_directory(tables);
        let entry = self.loaded_entry(tables, &name, request.entry)?;
        let plan = self.plan(request, entry, &name, &directory);
        let mut way = Entry::new(&self.examined, tables, &place, leftovers, request.on_step);
        let called = way.call(&plan);
        way.sweep();
        let (finished, thread) = called?;
        answer(finished, thread, way.tries, way.stops, request.entry)
    }

    /// The function's address, if the library is loaded.
    fn loaded_entry(
        &self,
        tables: &Tables,
        name: &str,
        entry: &CStr,
    ) -> Result<Option<u64>, Error> {
        let path = format!("/memfd:{name}");
        let mut modules = tables.modules().iter();
        let Some(module) = modules.find(|module| module.path.starts_with(path.as_bytes())) else {
            return Ok(None);
        };
        let memory = &self.examined.memory;
        let functions = Image::read(memory, module.start).and_then(|image| image.functions(memory));
        let functions = functions.map_err(Error::System)?;
        let address = functions.address(entry.to_bytes());
        address.map(Some).ok_or_else(|| no_function(entry))
    }

    fn plan<'a>(
        &self,
        request: Request<'a>,
        entry: Option<u64>,
        name: &'a str,
        directory: &'a [u8],
    ) -> CallPlan<'a> {
        let address = |name: &[u8]| self.examined.functions.address(name).unwrap_or(0);
        CallPlan {
            dlopen: address(b"dlopen"),
            dlsym: address(b"dlsym"),
            dlerror: address(b"dlerror"),
            errno: address(b"__errno_location"),
            entry,
            name: name.as_bytes(),
            directory,
            entry_name: request.entry.to_bytes(),
            library: request.library,
            argument: request.argument,
        }
    }
}

/// The name of the memory file for a library: two libraries have two names.
fn library_name(library: &[u8]) -> String {
    // FNV-1a, 64 bits: the name must be the same in every build.
    let hash = library
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{}{hash:016x}", Target::LIBRARY_PREFIX)
}

/// The directory of the process's descriptors. The loader compares names: a second library with the
/// number of the first would be taken for it, so each gets another spelling.
fn descriptor_directory(tables: &Tables) -> Vec<u8> {
    let prefix = format!("/memfd:{}", Target::LIBRARY_PREFIX);
    let modules = tables.modules().iter();
    let earlier = modules
        .filter(|module| module.path.starts_with(prefix.as_bytes()))
        .count();
    let dots = "./".repeat(earlier.min(200));
    format!("/proc/self/{dots}fd/").into_bytes()
}

fn answer(
    finished: Finished,
    thread: u32,
    tries: u32,
    stops: StopTimes,
    entry: &CStr,
) -> Result<RemoteCall, Error> {
    match finished.outcome {
        Ok(Outcome::Returned(returned)) => Ok(RemoteCall {
            returned,
            stop: stops.longest,
            stop_total: stops.total,
            stops: stops.stops,
            waits: stops.waits,
            thread,
            tries,
        }),
        Ok(Outcome::NoMemfd(errno)) => Err(Error::NoResource {
            what: "a memory file",
            source: io::Error::from_raw_os_error(errno),
        }),
        Ok(Outcome::NotWritten) => Err(Error::NoResource {
            what: "memory for the library",
            source: io::ErrorKind::StorageFull.into(),
        }),
        Ok(Outcome::NotReached(reason)) => Err(Error::NoProc { reason }),
        Ok(Outcome::NotLoaded(reason)) => Err(Error::NotLoaded { reason }),
        Ok(Outcome::NoSymbol) => Err(no_function(entry)),
        Ok(Outcome::NotStarted | Outcome::Unfinished) | Err(CallFailure::Limit) => {
            Err(Error::Limit)
        }
        Err(CallFailure::Fault(signal)) => Err(Error::Fault { signal }),
    }
}

fn no_function(entry: &CStr) -> Error {
    Error::NoFunction {
        name: entry.to_string_lossy().into_owned(),
    }
}
