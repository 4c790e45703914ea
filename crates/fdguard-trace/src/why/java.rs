//! The heap of a JVM: a thread of the injected library asks the JVM for all references, and leaves
//! them in the program's memory until they were read. See decision 152.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::thread;
use std::time::{Duration, Instant};

use fdguard_attach::Target;
use fdguard_core::count::as_f64;
use fdguard_core::units::{short_duration, size};
use fdguard_proc::link::without_mark;
use fdguard_proc::maps::mappings;
use fdguard_why::{FirstWalk, JavaHeap, JavaRecords, Memory as _};
use fdguard_wire::{
    JAVA_TAKEN, JAVA_WALK, JAVA_WALK_MAGIC, JavaEdge, JavaList, JavaNumber, JavaRoot, JavaWalkHead,
    JavaWalkRequest, JavaWalkState, WALK_PLACES,
};

use super::memory::ProcessMemory;
use super::{HeapAnswer, HeapRefusal, limit};
use crate::listener::monotonic;
use crate::trace_dir;

/// More heap in use than this is walked only if that is demanded: about 500,000 objects beside
/// strings, arrays of values and garbage.
const MOST_HEAP: u64 = 50 << 20;
/// What an object takes at least, on average.
const OBJECT: u64 = 28;
/// What the program is stopped for one object at most: 0.5 to 1.1 µs were measured, four times as
/// much on a busy machine. The walk ends when that is over.
const STOP_PER_OBJECT: Duration = Duration::from_nanos(4400);
const SHORTEST_STOP: Duration = Duration::from_millis(250);
/// The same if a walk is demanded: a walk of 50 ms took longer than 250 ms at a load of 15.
const FORCED_SHORTEST_STOP: Duration = Duration::from_secs(5);
/// What the objects and references take at most, about 500,000 and a million: where the heap in use
/// has more of them than expected, the walk ends there.
const ROOM: u64 = 16 << 20;
const FORCED_ROOM: u64 = 6 << 30;
/// The longest walk.
const DEADLINE: Duration = Duration::from_secs(30);
const FORCED_DEADLINE: Duration = Duration::from_secs(600);
/// How long the records stay, if fdguard is gone.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(2);
/// How long the library's thread takes to end at most.
const LEAVING: Duration = Duration::from_secs(2);

/// What a walk may cost.
#[derive(Clone, Copy, Debug)]
struct Limits {
    heap: u64,
    room: u64,
    stop_per_object: Duration,
    least_stop: Duration,
    deadline: Duration,
}

impl Limits {
    const USUAL: Self = Self {
        heap: MOST_HEAP,
        room: ROOM,
        stop_per_object: STOP_PER_OBJECT,
        least_stop: SHORTEST_STOP,
        deadline: DEADLINE,
    };
    const FORCED: Self = Self {
        heap: u64::MAX,
        room: FORCED_ROOM,
        least_stop: FORCED_SHORTEST_STOP,
        deadline: FORCED_DEADLINE,
        ..Self::USUAL
    };
}

/// What a walk would cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedStop {
    /// Bytes of heap in use, garbage included.
    pub heap: u64,
    /// How many objects that may be at most.
    pub objects: u64,
    /// How long the program may be stopped if the walk is demanded.
    pub stop: Duration,
}

impl ExpectedStop {
    fn of(heap: u64) -> Self {
        let objects = heap / OBJECT;
        let count = u32::try_from(objects).unwrap_or(u32::MAX);
        Self {
            heap,
            objects,
            stop: STOP_PER_OBJECT
                .saturating_mul(count)
                .max(FORCED_SHORTEST_STOP),
        }
    }
}

impl std::fmt::Display for ExpectedStop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stop = short_duration(self.stop.as_secs_f64());
        let objects = thousands(self.objects.div_ceil(1000));
        write!(
            f,
            "{} of heap are in use, at most {objects} objects or so; a walk stops the program for \
             up to {stop}",
            size(as_f64(self.heap))
        )
    }
}

/// So many thousands: `2,401,000`.
fn thousands(count: u64) -> String {
    match count {
        0..1000 => format!("{count},000"),
        _ => {
            let before = thousands(count / 1000);
            let before = before.strip_suffix(",000").unwrap_or(&before);
            format!("{before},{:03},000", count % 1000)
        }
    }
}

/// Whether a process runs a JVM.
pub(super) fn is_java(pid: u32) -> bool {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    mappings(&maps).any(|mapping| without_mark(mapping.path).ends_with(b"/libjvm.so"))
}

/// Asks what a walk would cost; `None` if that cannot be known, or if it is no JVM.
#[must_use]
pub fn expected_stop(pid: u32) -> Option<ExpectedStop> {
    if !is_java(pid) {
        return None;
    }
    let target = Target::examine(pid).ok()?;
    let limits = Limits {
        heap: 0,
        room: 1 << 16,
        ..Limits::USUAL
    };
    let walk = JavaWalk::begin(pid, &target, &limits).ok()?;
    Some(ExpectedStop::of(walk.head.heap)).filter(|expected| expected.heap > 0)
}

/// Walks the heap of a JVM, and answers for groups of descriptors.
pub(super) fn ask(
    pid: u32,
    target: &Target,
    groups: &[Vec<u32>],
    is_forced: bool,
    has_time: bool,
) -> Result<HeapAnswer, HeapRefusal> {
    let room = limit::room(pid)
        .map_err(|reason| HeapRefusal::new(reason, "raise the limit, or restart the program"))?;
    let mut limits = match is_forced {
        false => Limits::USUAL,
        true => Limits::FORCED,
    };
    limits.room = limits.room.min(room / 2);
    if !has_time {
        (limits.stop_per_object, limits.least_stop) = (Duration::ZERO, Duration::ZERO);
    }
    let walk = JavaWalk::begin(pid, target, &limits)?;
    let refused = |reason: &str, way: &str| Err(HeapRefusal::new(reason, way));
    match JavaWalkState::of(walk.head.state) {
        Some(JavaWalkState::Done) => {}
        Some(JavaWalkState::TooLarge) => {
            let reason = ExpectedStop::of(walk.head.heap).to_string();
            let way = format!("run fdguard why {pid} --force when that is no harm");
            return refused(&reason, &way);
        }
        Some(JavaWalkState::NoMachine) => {
            return refused("the JVM has not started yet", "ask again while it runs");
        }
        Some(JavaWalkState::NoMemory) => {
            return refused("there is not enough memory for a walk", "free memory");
        }
        _ => {
            let reason = format!("the JVM refuses a walk (error {})", walk.head.error);
            return refused(&reason, "use HotSpot 11 to 21");
        }
    }
    let heap = JavaHeap::new(walk.records());
    Ok(HeapAnswer {
        whys: heap.answer(groups, &walk.memory),
        stop: Duration::from_nanos(walk.head.stop).max(walk.stop),
        objects: heap.object_count(),
        unreachable: None,
        seen: FirstWalk::default(),
    })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A walk, from its beginning until its records are given back.
struct JavaWalk {
    pid: u32,
    place: u64,
    memory: ProcessMemory,
    head: JavaWalkHead,
    stop: Duration,
}

impl JavaWalk {
    fn begin(pid: u32, target: &Target, limits: &Limits) -> Result<Self, HeapRefusal> {
        let request = JavaWalkRequest {
            magic: JAVA_WALK_MAGIC,
            nonce: monotonic(),
            most_heap: limits.heap,
            bytes: limits.room,
            patience: u64::try_from(PATIENCE.as_millis()).unwrap_or(0),
            stop_per_kib: nanoseconds(limits.stop_per_object) * 1024 / OBJECT,
            least_stop: nanoseconds(limits.least_stop),
        };
        let memory = ProcessMemory::open(pid).map_err(|error| {
            HeapRefusal::new(format!("cannot read its memory ({error})"), "use sudo")
        })?;
        let bytes = request.bytes();
        let call = target.call(trace_dir::library(), JAVA_WALK, bytes.as_flattened());
        let call = call.map_err(|error| {
            HeapRefusal::new(error.to_string(), error.remedy().unwrap_or_default())
        })?;
        let place = usize::try_from(call.returned).ok();
        let Some(place) = place.and_then(|at| WALK_PLACES.get(at)) else {
            let error = std::io::Error::from_raw_os_error(-call.returned);
            let reason = format!("no thread can be started in the program ({error})");
            return Err(HeapRefusal::new(reason, "free memory or threads"));
        };
        let mut walk = Self {
            pid,
            place: *place,
            memory,
            head: JavaWalkHead::default(),
            stop: call.stop,
        };
        let end = Instant::now() + limits.deadline;
        while walk.head.state <= JavaWalkState::Walking as u64 {
            thread::sleep(LOOK);
            let head = walk.read_head(request.nonce);
            let gone = || HeapRefusal::new("the program ended", "");
            walk.head = head.ok_or_else(gone)?;
            if Instant::now() >= end {
                let reason = "the JVM has not answered in time";
                return Err(HeapRefusal::new(reason, "ask again when it is less busy"));
            }
        }
        Ok(walk)
    }

    fn read_head(&self, nonce: u64) -> Option<JavaWalkHead> {
        let mut bytes = [0; JavaWalkHead::SIZE];
        let is_read = self.memory.read(self.place, &mut bytes);
        let head = is_read.then(|| JavaWalkHead::read(&bytes));
        head.filter(|head| head.magic == JAVA_WALK_MAGIC && head.nonce == nonce)
    }

    fn records(&self) -> JavaRecords {
        let head = &self.head;
        let nodes = self.bytes(head.nodes, 4);
        let (nodes, _) = nodes.as_chunks::<4>();
        let edges = self.bytes(head.edges, JavaEdge::SIZE);
        let (edges, _) = edges.as_chunks::<{ JavaEdge::SIZE }>();
        let roots = self.bytes(head.roots, JavaRoot::SIZE);
        let (roots, _) = roots.as_chunks::<{ JavaRoot::SIZE }>();
        let numbers = self.bytes(head.numbers, JavaNumber::SIZE);
        let (numbers, _) = numbers.as_chunks::<{ JavaNumber::SIZE }>();
        JavaRecords {
            nodes: nodes.iter().map(|node| u32::from_le_bytes(*node)).collect(),
            edges: edges.iter().map(JavaEdge::read).collect(),
            roots: roots.iter().map(JavaRoot::read).collect(),
            numbers: numbers.iter().map(JavaNumber::read).collect(),
            text: self.bytes(head.text, 1),
            classes: head.classes,
            is_partial: head.is_partial != 0,
        }
    }

    fn bytes(&self, list: JavaList, size: usize) -> Vec<u8> {
        let length = list.count.saturating_mul(size as u64).min(FORCED_ROOM);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        match self.memory.read(list.start, &mut bytes) {
            true => bytes,
            false => Vec::new(),
        }
    }
}

impl Drop for JavaWalk {
    /// The library's thread returns the memory and ends.
    fn drop(&mut self) {
        let file: Option<File> = OpenOptions::new()
            .write(true)
            .open(format!("/proc/{}/mem", self.pid))
            .ok();
        let taken = 1_u64.to_le_bytes();
        let written = file.map(|file| file.write_all_at(&taken, self.place + JAVA_TAKEN));
        if !matches!(written, Some(Ok(()))) || self.head.state <= JavaWalkState::Walking as u64 {
            return;
        }
        let end = Instant::now() + LEAVING;
        while self.read_head(self.head.nonce).is_some() && Instant::now() < end {
            thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ExpectedStop;

    #[test]
    fn an_expected_stop_has_separators_and_at_least_what_a_forced_walk_may_take() {
        let text = |heap: u64| ExpectedStop::of(heap).to_string();
        assert_eq!(
            text(1 << 20),
            "1 MiB of heap are in use, at most 38,000 objects or so; a walk stops the program for \
             up to 5 s"
        );
        let large = text(64 << 20);
        assert!(large.contains("at most 2,397,000 objects"), "{large}");
        assert!(large.ends_with("up to 11 s"), "{large}");
        let huge = text(64 << 30);
        assert!(huge.contains("at most 2,454,268,000 objects"), "{huge}");
    }
}
