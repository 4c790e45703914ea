//! One walk: the copy of the process, from its beginning to its end.

use std::thread;
use std::time::{Duration, Instant};

use fdguard_attach::Target;
use fdguard_why::{COLLECTING, GENERATION, Graph, Memory as _, PERMANENT};
use fdguard_wire::{WALK, WALK_MAGIC, WALK_PLACES, WalkHead, WalkNode, WalkRequest, WalkState};

use super::memory::ProcessMemory;
use super::{HeapRefusal, PythonTarget, WalkFaults, ending, is_running, limit};
use crate::listener::monotonic;
use crate::pid_namespace::PidNames;
use crate::trace_dir;

/// The longest walk.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long the copy waits to be read, if fdguard is gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the copy lives at most, if fdguard is gone and the walk does not end.
const LIFE: Duration = Duration::from_secs(100);
/// After so many objects a walk goes wrong, in tests.
const WRONG: u64 = 100;
const LOOK: Duration = Duration::from_millis(1);
/// The highest number that a descriptor can have.
const MOST_NUMBER: u64 = 1 << 20;
/// The most that is read of a copy.
const MOST_READ: u64 = 8 << 30;

/// Why there is no walk.
#[derive(Debug)]
pub(super) enum WalkFailure {
    /// Another try may work.
    Passing(String),
    /// It would not.
    Lasting(HeapRefusal),
}

/// A copy that has walked, and waits. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    ending: Ending<'a>,
    pub(super) memory: ProcessMemory,
    head: WalkHead,
    stop: Duration,
    /// The copy's pid as fdguard sees it.
    outside: u32,
}

impl<'a> Walk<'a> {
    /// Makes the copy, and waits until it has walked.
    pub(super) fn begin(
        pid: u32,
        target: &'a Target,
        python: &PythonTarget,
        attempt: usize,
        faults: &WalkFaults,
    ) -> Result<Self, WalkFailure> {
        let lasting =
            |reason: String, way: &str| WalkFailure::Lasting(HeapRefusal::new(reason, way));
        let room = limit::room(pid)
            .map_err(|reason| lasting(reason, "raise the limit, or restart the program before"))?;
        let request = WalkRequest {
            life: milliseconds(faults.life.unwrap_or(LIFE)),
            fault: u64::from(attempt < faults.crashes) * WRONG,
            hang: u64::from(faults.hangs) * WRONG,
            ..request(python, room)
        };
        let bytes = request.bytes();
        let call = target.call(trace_dir::library(), WALK, bytes.as_flattened());
        let call =
            call.map_err(|error| lasting(error.to_string(), error.remedy().unwrap_or_default()))?;
        let Ok(inside) = u32::try_from(call.returned) else {
            let error = std::io::Error::from_raw_os_error(-call.returned);
            let reason = format!("the kernel refuses a copy of the process ({error})");
            return Err(lasting(reason, "free memory or processes, and ask again"));
        };
        let ending = Ending {
            pid,
            target,
            inside,
        };
        let outside = PidNames::of(pid).outside(inside);
        let gone = || WalkFailure::Passing("the copy of the process ended".to_owned());
        let outside = outside.ok_or_else(gone)?;
        limit::prefer_as_victim(outside);
        let memory = ProcessMemory::open(outside).map_err(|_gone| gone())?;
        let deadline = faults.deadline.unwrap_or(DEADLINE);
        let head = wait(&memory, request.nonce, outside, deadline)?;
        Ok(Self {
            ending,
            memory,
            head,
            stop: call.stop,
            outside,
        })
    }

    /// Ends the copy. Returns how long the program was stopped at most: for the copy, and for its
    /// end.
    pub(super) fn end(mut self) -> Duration {
        let stop = self.ending.end();
        self.stop.max(stop)
    }

    /// Whether all that was read until now is of a copy that still has its memory: it ends with
    /// the thread that made it, and then names are missing.
    pub(super) fn is_whole(&self) -> bool {
        is_running(self.outside)
    }

    /// What it has left.
    pub(super) fn graph(&self) -> Graph {
        let nodes = self.bytes(self.head.nodes, self.head.node_count, WalkNode::SIZE);
        let (nodes, _) = nodes.as_chunks::<{ WalkNode::SIZE }>();
        let nodes: Vec<WalkNode> = nodes.iter().map(WalkNode::read).collect();
        let edges = self.bytes(self.head.edges, self.head.edge_count, 8);
        let (edges, _) = edges.as_chunks::<8>();
        let edges: Vec<u64> = edges.iter().map(|edge| u64::from_le_bytes(*edge)).collect();
        Graph::new(&nodes, &edges)
    }

    fn bytes(&self, address: u64, count: u64, size: usize) -> Vec<u8> {
        let length = count.saturating_mul(size as u64);
        let length = usize::try_from(length.min(MOST_READ)).unwrap_or(0);
        let mut bytes = vec![0; length];
        match self.memory.read(address, &mut bytes) {
            true => bytes,
            false => Vec::new(),
        }
    }
}

/// Ends a copy.
#[derive(Debug)]
struct Ending<'a> {
    pid: u32,
    target: &'a Target,
    /// The copy's pid as the program sees it; 0 when it was ended.
    inside: u32,
}

impl Ending<'_> {
    fn end(&mut self) -> Duration {
        match std::mem::take(&mut self.inside) {
            0 => Duration::ZERO,
            inside => ending::end(self.pid, self.target, inside, &[]),
        }
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

fn request(of: &PythonTarget, room: u64) -> WalkRequest {
    let at = of.interpreter.generations;
    let [dict, tuple, long, leaves @ ..] = of.heap.plain;
    let [float, boolean, none, _complex] = leaves;
    WalkRequest {
        magic: WALK_MAGIC,
        nonce: monotonic(),
        lists: [at, at + GENERATION, at + 2 * GENERATION, at + PERMANENT],
        collecting: at + COLLECTING,
        dict,
        tuple,
        long,
        one_digit: if of.heap.minor >= 12 { 8 } else { 1 },
        most: MOST_NUMBER,
        bytes: room,
        skipped: [
            of.heap.unicode_type,
            of.heap.bytes_type,
            float,
            boolean,
            none,
            0,
        ],
        patience: milliseconds(PATIENCE),
        ..WalkRequest::default()
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(0)
}

/// Waits until the copy has walked.
fn wait(
    memory: &ProcessMemory,
    nonce: u64,
    pid: u32,
    deadline: Duration,
) -> Result<WalkHead, WalkFailure> {
    let passing = |reason: &str| Err(WalkFailure::Passing(reason.to_owned()));
    let lasting =
        |reason: &str, way: &str| Err(WalkFailure::Lasting(HeapRefusal::new(reason, way)));
    let began = Instant::now();
    loop {
        let is_over = !is_running(pid);
        let head = find(memory, nonce);
        match head.and_then(|head| WalkState::of(head.state).map(|state| (head, state))) {
            Some((head, WalkState::Done)) => return Ok(head),
            Some((_, WalkState::Collecting)) => return passing("the collector was running"),
            Some((_, WalkState::Endless)) => return passing("a list of the collector had no end"),
            Some((_, WalkState::NoMemory | WalkState::NoRoom)) => {
                return lasting(
                    "there is not enough memory for a walk",
                    "free memory, and ask again",
                );
            }
            Some((_, WalkState::Walking)) | None if is_over => {
                return passing("the copy of the process ended");
            }
            _ if began.elapsed() > deadline => {
                return lasting(
                    "the walk took too long",
                    "ask again when the machine is less busy",
                );
            }
            _ => thread::sleep(LOOK),
        }
    }
}

fn find(memory: &ProcessMemory, nonce: u64) -> Option<WalkHead> {
    WALK_PLACES.iter().find_map(|place| {
        let mut bytes = [0; WalkHead::SIZE];
        let is_read = memory.read(*place, &mut bytes);
        let head = WalkHead::read(&bytes);
        (is_read && head.magic == WALK_MAGIC && head.nonce == nonce).then_some(head)
    })
}
