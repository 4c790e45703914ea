//! The programs that report opens and closes, while they are loaded.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::call;
use crate::decode::Decoder;
use crate::goroutine::{self, GoLayout, GoProbe, GoProbes};
use crate::loader::{self, LoadOptions, LoadedObject};
use crate::object::BpfObject;
use crate::python;
use crate::ring::Ring;
use crate::stack::{self, CopiedStacks, StackMode, StackSlot};
use crate::{KernelEvent, LoadRefusal, Occurrence};

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
    /// How stacks are taken of programs that nothing is known about.
    pub mode: StackMode,
    /// The room for events in bytes, a power of two; `None` for the usual.
    pub room: Option<u32>,
    /// The same for stacks.
    pub stack_room: Option<u32>,
}

impl Default for TracerOptions {
    fn default() -> Self {
        Self {
            scope: TracerScope::Followed,
            mode: StackMode::Copied,
            room: None,
            stack_room: None,
        }
    }
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
    stacks: Ring,
    decoder: Decoder,
    copied: CopiedStacks,
    goroutines: GoProbes,
    /// Generations of followed processes before their first exec differ from those after it.
    generations: AtomicU32,
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
        Self::load_with(&TracerOptions {
            scope,
            ..TracerOptions::default()
        })
    }

    /// The same, with other options.
    pub fn load_with(options: &TracerOptions) -> Result<Self, LoadRefusal> {
        loader::check_registers()?;
        let bytes = loader::kernel_types()?;
        let place = BpfObject::parse(loader::PLACE)?;
        let events = BpfObject::parse(loader::EVENTS)?;
        let types = loader::find_types(&bytes, &[&place, &events])?;
        let place = LoadedObject::load(&place, &types, &LoadOptions::default())?;
        let place = find_place(&place)?;
        let rooms = [("events", options.room), ("stacks", options.stack_room)];
        let rooms = rooms.map(|(name, room)| Some((name, room?)));
        let rooms: Vec<_> = rooms.into_iter().flatten().collect();
        let object = LoadedObject::load(
            &events,
            &types,
            &LoadOptions {
                constants: &[
                    ("whole_host", u32::from(options.scope == TracerScope::Host)),
                    ("own_pid", std::process::id()),
                    ("first_mode", options.mode.number()),
                    ("namespace_level", place.level),
                    ("namespace_number", place.number),
                ],
                entries: &rooms,
            },
        )?;
        let map_ring = |name| {
            let ring = object.map(name)?;
            Ring::map(ring.as_fd(), ring.shape().entries)
        };
        let events = map_ring("events").map_err(internal)?;
        let stacks = map_ring("stacks").map_err(internal)?;
        let links = PROGRAMS.iter().map(|name| object.attach(name));
        Ok(Self {
            _links: links.collect::<Result<_, _>>()?,
            object,
            events,
            stacks,
            decoder: Decoder::default(),
            copied: CopiedStacks::default(),
            goroutines: GoProbes::default(),
            generations: AtomicU32::new(1 << 31),
        })
    }

    /// Reports this process, and all it starts, from now on. For one that is followed already,
    /// changes how its stacks are taken; after an exec that is as the options say.
    pub fn follow(&self, pid: u32, mode: StackMode) -> io::Result<()> {
        let followed = self.object.map("followed")?;
        let known = followed.read(&pid.to_ne_bytes()).ok();
        let known = known.and_then(|value| value.get(4..8)?.try_into().ok());
        let generation = known.unwrap_or_else(|| {
            let new = self.generations.fetch_add(1, Ordering::Relaxed);
            new.to_ne_bytes()
        });
        let value = [mode.number().to_ne_bytes(), generation].concat();
        Ok(followed.update(&pid.to_ne_bytes(), &value)?)
    }

    /// Follows a process that is a Go program: its stacks are taken by frame pointers, with their
    /// goroutines, and with their creators if the program is probed.
    pub fn follow_go(&self, pid: u32, layout: GoLayout, probe: Option<GoProbe>) -> io::Result<()> {
        self.follow(pid, StackMode::FramePointers)?;
        let process = self.object.map("followed")?.read(&pid.to_ne_bytes())?;
        let generation = process.get(4..8).and_then(|bytes| bytes.try_into().ok());
        let generation = u32::from_ne_bytes(generation.unwrap_or_default());
        goroutine::follow(&self.object, pid, generation, (layout, probe))
    }

    /// Sees who creates goroutines in a Go program, in all followed processes that run it, also
    /// those that start it later. `offset` is an instruction at the beginning of
    /// `runtime.gostartcallfn` in the file.
    pub fn probe_go(&mut self, file: &Path, offset: u64, layout: GoLayout) -> io::Result<GoProbe> {
        self.goroutines.add(&self.object, file, offset, layout)
    }

    /// Sees new goroutines of a probed program no longer, or again: each costs the program an
    /// exception. What is known of the creators of running goroutines is only kept for those that
    /// have opened something.
    pub fn set_probe(&mut self, probe: GoProbe, is_attached: bool) -> io::Result<()> {
        self.goroutines
            .set_attached(&self.object, probe, is_attached)
    }

    /// Whether new goroutines of a probed program are seen now, and how many were seen so far.
    pub fn probe_state(&self, probe: GoProbe) -> io::Result<(bool, u64)> {
        let created = goroutine::created(&self.object, probe)?;
        Ok((self.goroutines.is_attached(probe), created))
    }

    /// Tells the kernel where a copied stack has its return addresses, all of them: the same stack
    /// gets the same number from now on and is not copied again. Without effect for a stack that is
    /// too old, or has none or more than 64.
    pub fn remember(&mut self, number: u32, slots: &[StackSlot]) -> io::Result<()> {
        let Some((key, template)) = self.copied.take(number).zip(stack::template(number, slots))
        else {
            return Ok(());
        };
        let templates = self.object.map("templates")?;
        let mut last = None;
        for variant in key.variants() {
            match templates.read(&variant) {
                // Another copy of the same stack was faster.
                Ok(known) if known.get(4..) == template.get(4..) => return Ok(()),
                Ok(known) => {
                    last = Some(variant);
                    // The kernel has a longer list of this very stack.
                    if known.get(..4) == template.get(..4) {
                        break;
                    }
                }
                Err(_) => {
                    last = Some(variant);
                    break;
                }
            }
        }
        let Some(variant) = last else { return Ok(()) };
        Ok(templates.update(&variant, &template)?)
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
        self.drain_some(self.position(), usize::MAX, take);
        Ok(())
    }

    /// What has happened until now ends here.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.events.written()
    }

    /// Passes on what has happened up to this position, at most this many events and all stacks
    /// that have arrived; returns how many events there were.
    pub fn drain_some(
        &mut self,
        end: u64,
        most: usize,
        take: &mut dyn FnMut(KernelEvent),
    ) -> usize {
        // The stack of an event is complete before the event is.
        let stacks = self.stacks.written();
        let copied = &mut self.copied;
        self.stacks.read(stacks, &mut |bytes| {
            if let Some(code) = python::decode(bytes) {
                take(KernelEvent {
                    at: 0,
                    pid: code.pid,
                    tid: 0,
                    table: 0,
                    stack: 0,
                    what: Occurrence::PythonCode(Box::new(code)),
                });
            } else if let Some(stack) = copied.decode(bytes) {
                take(KernelEvent {
                    at: 0,
                    pid: stack.pid,
                    tid: 0,
                    table: 0,
                    stack: stack.number,
                    what: Occurrence::Stack(Box::new(stack)),
                });
            }
        });
        let decoder = &mut self.decoder;
        self.events.read_some(end, most, &mut |bytes| {
            if let Some(event) = decoder.decode(bytes) {
                take(event);
            }
        })
    }

    /// Drops what has happened up to this position; returns how many events there were.
    pub fn skip(&mut self, end: u64) -> usize {
        self.stacks.read(self.stacks.written(), &mut |_| {});
        self.events.read_some(end, usize::MAX, &mut |_| {})
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
