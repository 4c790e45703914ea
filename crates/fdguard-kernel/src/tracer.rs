//! The programs that report opens and closes, while they are loaded.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use crate::call;
use crate::decode::Decoder;
use crate::loader::{self, LoadOptions, LoadedObject};
use crate::object::BpfObject;
use crate::ring::Ring;
use crate::{KernelEvent, LoadRefusal};

/// Which processes are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracerScope {
    /// Those that [`KernelTracer::follow`] names, and all they start.
    Followed,
    /// Every process of the host except fdguard.
    Host,
}

/// How the programs are loaded.
#[derive(Clone, Copy, Debug)]
pub struct TracerOptions {
    /// Which processes are reported.
    pub scope: TracerScope,
    /// The room for events in bytes, a power of two; `None` for the usual.
    pub room: Option<u32>,
}

/// How much could not be reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostCounts {
    /// Events for which the buffer had no room.
    pub events: u64,
    /// Stacks for which there was no room.
    pub stacks: u64,
    /// Calls of 32-bit programs, which are not understood.
    pub foreign: u64,
}

/// The programs, in the order in which they begin to report.
const PROGRAMS: [&str; 5] = [
    "before_end",
    "after_exec",
    "after_fork",
    "after_call",
    "before_call",
];

/// The loaded programs. Dropping it removes them.
#[derive(Debug)]
pub struct KernelTracer {
    pub(crate) object: LoadedObject,
    events: Ring,
    decoder: Decoder,
    /// The programs run as long as these are open.
    _links: Vec<OwnedFd>,
}

/// Where fdguard is among the pid namespaces.
struct NamespacePlace {
    level: u32,
    number: u32,
}

impl KernelTracer {
    /// Loads the programs and starts to report.
    pub fn load(scope: TracerScope) -> Result<Self, LoadRefusal> {
        Self::load_with(&TracerOptions { scope, room: None })
    }

    /// The same, with other options.
    pub fn load_with(options: &TracerOptions) -> Result<Self, LoadRefusal> {
        let bytes = loader::kernel_types()?;
        let place = BpfObject::parse(loader::PLACE)?;
        let events = BpfObject::parse(loader::EVENTS)?;
        let types = loader::find_types(&bytes, &[&place, &events])?;
        let place = LoadedObject::load(&place, &types, &LoadOptions::default())?;
        let place = find_place(&place)?;
        let room = options.room.map(|room| ("events", room));
        let object = LoadedObject::load(
            &events,
            &types,
            &LoadOptions {
                constants: &[
                    ("whole_host", u32::from(options.scope == TracerScope::Host)),
                    ("own_pid", std::process::id()),
                    ("namespace_level", place.level),
                    ("namespace_number", place.number),
                ],
                entries: room.as_slice(),
            },
        )?;
        let ring = object.map("events").map_err(internal)?;
        let events = Ring::map(ring.as_fd(), ring.shape().entries).map_err(internal)?;
        let links = PROGRAMS.iter().map(|name| object.attach(name));
        Ok(Self {
            _links: links.collect::<Result<_, _>>()?,
            object,
            events,
            decoder: Decoder::default(),
        })
    }

    /// Reports this process, and all it starts, from now on.
    pub fn follow(&self, pid: u32) -> io::Result<()> {
        let followed = self.object.map("followed")?;
        Ok(followed.update(&pid.to_ne_bytes(), &[0; 8])?)
    }

    /// Reports it no longer.
    pub fn unfollow(&self, pid: u32) -> io::Result<()> {
        match self.object.map("followed")?.remove(&pid.to_ne_bytes()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Passes on what has happened since the last time; never waits.
    pub fn drain(&mut self, take: &mut dyn FnMut(KernelEvent)) -> io::Result<()> {
        let end = self.events.written();
        let decoder = &mut self.decoder;
        self.events.read(end, &mut |bytes| {
            if let Some(event) = decoder.decode(bytes) {
                take(event);
            }
        });
        Ok(())
    }

    /// What was lost so far.
    #[must_use]
    pub fn lost(&self) -> LostCounts {
        let count = |name| self.object.counter(name).unwrap_or(0);
        LostCounts {
            events: count("lost_events"),
            stacks: count("lost_stacks"),
            foreign: count("foreign_calls"),
        }
    }
}

/// Runs the program that looks at fdguard itself.
fn find_place(place: &LoadedObject) -> Result<NamespacePlace, LoadRefusal> {
    let program = place.program("find_place").map_err(internal)?;
    call::run_program(program.as_fd()).map_err(internal)?;
    let found = place.variable("found_place").map_err(internal)?;
    let word = |at: usize| {
        let bytes = found.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| u32::from_ne_bytes(*bytes))
    };
    match (word(0), word(4)) {
        (Some(level), Some(number)) => Ok(NamespacePlace { level, number }),
        _ => Err(LoadRefusal::Damaged),
    }
}

fn internal(error: rustix::io::Errno) -> LoadRefusal {
    LoadRefusal::Refused {
        program: "events".to_owned(),
        reason: error.to_string(),
    }
}
