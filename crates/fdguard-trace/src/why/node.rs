//! The heap of a Node program: it is asked through its inspector to make a copy of itself, and a
//! text of fdguard's writes a heap snapshot in the copy. See decision 195.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use fdguard_attach::Target;
use fdguard_core::count::as_f64;
use fdguard_core::units::size;
use fdguard_proc::link::Link;
use fdguard_proc::maps::{MapsRegion, private_memory};
use fdguard_proc::smaps;
use fdguard_proc::stat::ProcStat;
use fdguard_why::{FirstWalk, NodeHeap};
use fdguard_wire::WAKE_INSPECTOR;

use super::{HeapAnswer, HeapRefusal, PAUSE, TRIES, WalkFaults, ending, limit, open_paths};
use crate::node::NodeProgram;
use crate::pid_namespace::PidNames;
use crate::trace_dir;

/// Evaluated in the program.
const WALK: &str = include_str!("node_walk.js");
/// What a copy does that hangs for a test.
const HANG: &str = "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);";
/// More heap than this is walked only if that is demanded.
const MOST_HEAP: u64 = 50 << 20;
/// What a snapshot takes, in heaps.
const HEAPS: u64 = 12;
/// A copy that sleeps for so long waits for a thread that only the program has.
const ASLEEP: Duration = Duration::from_secs(5);
/// What a copy gets at most; then it ends itself. On a busy machine it has little of the processor.
const LONGEST: Duration = Duration::from_secs(110);
/// How long the copy may take to open its pipe.
const OPENING: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(2);
const O_NONBLOCK: i32 = 0o4000;
/// The most that is read of a copy.
const MOST_READ: usize = 4 << 30;

/// Whether a process runs Node.
pub(super) fn is_node(pid: u32) -> bool {
    NodeProgram::examine(pid).is_some()
}

/// What a Node program is asked.
pub(super) struct NodeQuestion<'a> {
    pub(super) pid: u32,
    pub(super) target: &'a Target,
    pub(super) is_forced: bool,
    pub(super) faults: &'a WalkFaults,
}

impl NodeQuestion<'_> {
    /// Walks the heap of a Node program, and answers for groups of descriptors.
    pub(super) fn ask(
        &self,
        groups: &[Vec<u32>],
        first: Option<&FirstWalk>,
    ) -> Result<HeapAnswer, HeapRefusal> {
        let mut failure = String::new();
        for attempt in 0..TRIES {
            if attempt > 0 {
                thread::sleep(PAUSE);
            }
            let Some(copy) = Copy::make(self)? else {
                "the kernel refuses a copy of the process".clone_into(&mut failure);
                continue;
            };
            let read = copy.read(self.faults);
            match read.and_then(|bytes| NodeHeap::parse(&bytes)) {
                Ok(heap) => return Ok(self.answer(&heap, copy.end(), groups, first)),
                Err(reason) => failure = reason,
            }
        }
        Err(HeapRefusal::new(
            format!("{failure}, {TRIES} times"),
            "ask again when the program is less busy",
        ))
    }

    fn answer(
        &self,
        heap: &NodeHeap,
        stop: Duration,
        groups: &[Vec<u32>],
        first: Option<&FirstWalk>,
    ) -> HeapAnswer {
        let paths = open_paths(self.pid);
        let files = paths.iter().filter(|(_, path)| path.starts_with('/'));
        let files = files.map(|(fd, _)| *fd).collect();
        let open = paths.keys().map(|fd| (*fd, 0)).collect();
        HeapAnswer {
            whys: heap.answer(groups, &files, first),
            stop,
            objects: heap.object_count(),
            unreachable: None,
            seen: heap.first_walk(open),
        }
    }

    /// What is evaluated in the program.
    fn text(&self) -> Result<String, HeapRefusal> {
        let room = limit::room(self.pid).map_err(|reason| {
            HeapRefusal::new(reason, "raise the limit, or restart the program")
        })?;
        let room = room / HEAPS;
        let most = if self.is_forced {
            room
        } else {
            room.min(MOST_HEAP)
        };
        let numbers = open_paths(self.pid).into_keys().map(|fd| fd.to_string());
        let numbers: Vec<String> = numbers.collect();
        let fault = match self.faults {
            WalkFaults { hangs: true, .. } => HANG,
            WalkFaults {
                is_endless: true, ..
            } => "for (;;);",
            _ => "",
        };
        let text = WALK.replace("/*NUMBERS*/", &numbers.join(","));
        let text = text.replace("/*LIMIT*/", &most.to_string());
        Ok(text.replace("/*FAULT*/", fault))
    }
}

/// A copy of the program. Dropping it ends it.
struct Copy<'a> {
    pid: u32,
    target: &'a Target,
    /// The copy's pid as the program sees it.
    inside: u32,
    /// Ranges that the program keeps out of copies.
    kept_out: Vec<(u64, u64)>,
    stop: Duration,
}

impl<'a> Copy<'a> {
    /// `None` if the kernel refuses it.
    fn make(asked: &NodeQuestion<'a>) -> Result<Option<Self>, HeapRefusal> {
        let (pid, target, is_forced) = (asked.pid, asked.target, asked.is_forced);
        let refused = |reason: &str| HeapRefusal::new(reason, "ask again when it is less busy");
        let program = match NodeProgram::examine(pid) {
            Some(program) => program.map_err(|failure| HeapRefusal::new(failure.reason(), ""))?,
            None => return Err(HeapRefusal::new("no such process", "")),
        };
        let text = asked.text()?;
        let kept_out = kept_out(pid);
        let mut stop = Duration::ZERO;
        let answer = program.ask(&text, |request| {
            let call = target.call(trace_dir::library(), WAKE_INSPECTOR, request);
            let call = call.map_err(|error| error.to_string())?;
            stop = call.stop;
            Ok(call.returned)
        });
        let answer = answer.map_err(|failure| refused(failure.reason()))?;
        let mut words = answer.split(' ');
        let word = words.next();
        let mut number = || {
            words
                .next()
                .and_then(|word| word.parse::<u64>().ok())
                .unwrap_or(0)
        };
        match word {
            Some("large") => {
                let heap = size(as_f64(number()));
                let reason = format!(
                    "{heap} of heap are in use, and a copy of the program would take {HEAPS} \
                     times as much"
                );
                let way = match is_forced {
                    true => "free memory, or raise the limit".to_owned(),
                    false => format!("run fdguard why {pid} --force when there is as much memory"),
                };
                Err(HeapRefusal::new(reason, &way))
            }
            Some("copied") => {
                let (inside, took) = (number(), number());
                let copy = Self {
                    pid,
                    target,
                    inside: inside.try_into().unwrap_or(0),
                    kept_out,
                    stop: stop.max(Duration::from_nanos(took)),
                };
                Ok(Some(copy).filter(|copy| copy.inside > 0))
            }
            _ => Err(refused("the program gave no valid answer")),
        }
    }

    /// All that it writes.
    fn read(&self, faults: &WalkFaults) -> Result<Vec<u8>, String> {
        let deadline = |is_tested| faults.deadline.filter(|_| is_tested);
        let asleep = deadline(faults.hangs).unwrap_or(ASLEEP);
        let longest = deadline(faults.is_endless).unwrap_or(LONGEST);
        let outside = PidNames::of(self.pid).outside(self.inside);
        let outside = outside.ok_or("the copy of the process ended")?;
        limit::prefer_as_victim(outside);
        let mut pipe = open_pipe(outside).ok_or("the copy of the process ended")?;
        let mut awake = Instant::now();
        let end = awake + longest;
        let mut bytes = Vec::new();
        let mut room = vec![0; 1 << 16];
        loop {
            match pipe.read(&mut room) {
                Ok(0) => return Ok(bytes),
                Ok(length) => {
                    bytes.extend(room.iter().take(length));
                    awake = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    thread::sleep(LOOK);
                    if !is_asleep(outside) {
                        awake = Instant::now();
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
            let is_stuck = awake.elapsed() >= asleep;
            if is_stuck || Instant::now() >= end || bytes.len() > MOST_READ {
                return Err("the copy of the process has not finished in time".to_owned());
            }
        }
    }
}

impl Copy<'_> {
    /// Ends it. Returns how long the program was stopped at most: for the copy, and for its end.
    fn end(mut self) -> Duration {
        self.stop.max(self.end_now())
    }

    fn end_now(&mut self) -> Duration {
        let inside = std::mem::take(&mut self.inside);
        if inside == 0 {
            return Duration::ZERO;
        }
        let mut request = Vec::new();
        let maps = std::fs::read(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
        let now: Vec<_> = private_memory(&maps).collect();
        // Only what is still there; it may be one with its neighbours now.
        let is_there = |(start, end): &&(u64, u64)| {
            let mut now = now.iter();
            now.any(|region| region.start <= *start && *end <= region.end)
        };
        for (start, end) in self.kept_out.iter().filter(is_there) {
            request.extend(start.to_le_bytes());
            request.extend((end - start).to_le_bytes());
        }
        ending::end(self.pid, self.target, inside, &request)
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        self.end_now();
    }
}

/// The reading end of the copy's pipe. Until the copy has replaced its descriptors, the number is
/// the program's own, of which nothing may be read.
fn open_pipe(copy: u32) -> Option<File> {
    let end = Instant::now() + OPENING;
    let place = |fd: u32| PathBuf::from(format!("/proc/{copy}/fd/{fd}"));
    let pipe = |fd: u32| {
        let link = std::fs::read_link(place(fd)).ok()?;
        match Link::parse(link.as_os_str().as_encoded_bytes()) {
            Link::Pipe(number) => Some(number),
            _ => None,
        }
    };
    while Instant::now() < end && std::fs::exists(format!("/proc/{copy}/fd")).unwrap_or(false) {
        let both = pipe(0).zip(pipe(1)).filter(|(read, write)| read == write);
        if let Some((number, _)) = both
            && let Ok(file) = OpenOptions::new()
                .read(true)
                .custom_flags(O_NONBLOCK)
                .open(place(0))
            && file.metadata().is_ok_and(|data| data.ino() == number)
        {
            return Some(file);
        }
        thread::sleep(LOOK);
    }
    None
}

/// Whether a process waits, for anything but the processor and the disk.
fn is_asleep(pid: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    ProcStat::parse(&stat).is_some_and(|stat| stat.state == b'S')
}

/// Private memory that the program keeps out of copies.
fn kept_out(pid: u32) -> Vec<(u64, u64)> {
    let text = std::fs::read(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let regions = smaps::flagged(&text, b"dc").filter(MapsRegion::is_private_memory);
    regions.map(|region| (region.start, region.end)).collect()
}
