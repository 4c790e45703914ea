//! What a tracer that was killed has left in a process: memory, and code at the program's entry.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fdguard_proc::sched::last_run;
use fdguard_proc::syscall::ThreadCall;

use crate::Refusal;
use crate::x86_64::candidates::threads;
use crate::x86_64::examine::Examined;
use crate::x86_64::injection::{CodePlace, MEMORY_CALLS};
use crate::x86_64::maps::Region;
use crate::x86_64::memory::Memory;
use crate::x86_64::remote::{
    CODE_SIZE, Outcome, Report, Scratch, USUAL_ADDRESS, data_of, syscall_code,
};

/// How long code that has no tracer may take to restore its thread.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long threads may take to leave the program's entry. A busy machine lets them wait.
const LEAVING: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

/// What is at the program's entry, and what belongs there.
pub(crate) fn code_place(examined: &Examined, regions: &[Region]) -> io::Result<(CodePlace, bool)> {
    let mut original = [0; 32];
    examined.memory.read_exact(examined.entry, &mut original)?;
    let is_leftover = original.starts_with(syscall_code());
    if is_leftover && let Some(bytes) = from_file(examined, regions) {
        original = bytes;
    }
    let place = CodePlace {
        address: examined.entry,
        original,
    };
    Ok((place, is_leftover))
}

/// Waits until no thread is at the program's entry any more, where a killed tracer left code: it is
/// there for one system call, which it may not have begun.
pub(crate) fn wait_until_left(pid: u32) {
    let start = Instant::now();
    let threads = threads(pid).unwrap_or_default().into_iter();
    let mut inside: Vec<_> = threads.map(|tid| (tid, ran_at(pid, tid))).collect();
    while !inside.is_empty() && start.elapsed() < LEAVING {
        sleep(PAUSE);
        inside.retain(|(tid, before)| may_be_inside(pid, *tid, *before));
    }
}

/// Whether a thread may still be there, which last ran at this time when it was first looked at.
fn may_be_inside(pid: u32, tid: u32, before: Option<Duration>) -> bool {
    let line = fs::read(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
    match ThreadCall::parse(&line) {
        Some(ThreadCall::Running) => ran_at(pid, tid) == before,
        Some(ThreadCall::Outside) => true,
        Some(ThreadCall::Waiting { number, .. }) => MEMORY_CALLS.contains(&number),
        None => false,
    }
}

fn ran_at(pid: u32, tid: u32) -> Option<Duration> {
    last_run(&fs::read(format!("/proc/{pid}/task/{tid}/sched")).ok()?)
}

fn from_file(examined: &Examined, regions: &[Region]) -> Option<[u8; 32]> {
    let region = regions
        .iter()
        .find(|region| region.contains(examined.entry))?;
    let file = File::open(format!("/proc/{}/exe", examined.key.pid)).ok()?;
    let mut bytes = [0; 32];
    let offset = region.offset + (examined.entry - region.start);
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

/// Memory of earlier calls that no thread uses any more. Refuses while one does.
pub(crate) fn scratch_memory(memory: &Memory, regions: &[Region]) -> Result<Vec<Scratch>, Refusal> {
    let pages = regions.iter().filter(|region| {
        region.path.is_empty()
            && region.is_executable()
            && !region.is_writable()
            && region.end - region.start >= CODE_SIZE as u64
    });
    let mut found = Vec::new();
    let start = Instant::now();
    for page in pages {
        if page.start == USUAL_ADDRESS && read(memory, page.start).is_none() {
            // Its tracer was killed before it wrote anything.
            let size = usize::try_from(page.end - page.start).unwrap_or(0);
            let address = page.start;
            found.push(Scratch { address, size });
        }
        while let Some((scratch, report)) = read(memory, page.start) {
            if report.left || !report.armed {
                found.push(scratch);
                break;
            }
            if start.elapsed() > PATIENCE {
                if report.outcome == Outcome::NotStarted {
                    // The tracer died in between; whether a thread will come is not known.
                    break;
                }
                return Err(Refusal::Unfinished);
            }
            sleep(PAUSE);
        }
    }
    Ok(found)
}

/// Whether no thread is inside this memory, nor about to be.
pub(crate) fn is_free(memory: &Memory, scratch: Scratch) -> bool {
    match read(memory, scratch.address) {
        Some((_, report)) => report.left || !report.armed,
        // A signal came before it was written.
        None => memory.word(scratch.address).is_ok(),
    }
}

fn read(memory: &Memory, address: u64) -> Option<(Scratch, Report)> {
    let report = Report::read(&memory.bytes(data_of(address), Report::SIZE).ok()?);
    let size = usize::try_from(report.scratch_size?).ok()?;
    Some((Scratch { address, size }, report))
}
