//! The files of a process that a look reads, with as few system calls as possible.

use std::fs::File;
use std::io::Read as _;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use fdguard_core::snapshot::Limits;
use fdguard_core::{Gap, Pid};
use fdguard_proc::{
    children, fdinfo::Fdinfo, limits, smaps, stat::ProcStat, statm, status::ProcStatus,
};
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;

/// Why a process could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The process has exited.
    Gone,
    /// Not permitted.
    Denied,
    /// fdguard's table, or the host's, is full.
    Full,
    /// Another error.
    Other(Errno),
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT | Errno::SRCH => Self::Gone,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Full,
            other => Self::Other(other),
        }
    }
}

impl Refusal {
    /// The same as a gap.
    pub(super) fn gap(self, what: String) -> Gap {
        let (why, remedy) = match self {
            Self::Gone => ("the process has ended".to_owned(), "none needed"),
            Self::Denied => (
                "permission denied: the process belongs to another user or is protected".to_owned(),
                "run fdguard as the service's user or as root",
            ),
            Self::Full => (
                "no file descriptor left: fdguard's table or the host's is full".to_owned(),
                "raise fs.file-max or fdguard's own limit (ulimit -n)",
            ),
            Self::Other(error) => (
                std::io::Error::from(error).to_string(),
                "run fdguard snap PID to see what can be read",
            ),
        };
        Gap::new(what, why, remedy)
    }
}

/// Reads files of processes into one buffer.
#[derive(Debug)]
pub(super) struct Files {
    buffer: Vec<u8>,
    /// Whether the size of a table's directory is the number of descriptors (Linux 6.2 and later).
    sizes: bool,
}

/// The parsed state file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) start_ticks: u64,
    pub(super) zombie: bool,
}

impl Files {
    pub(super) fn new() -> Self {
        let own = rustix::fs::stat("/proc/self/fd").map_or(0, |stat| stat.st_size);
        Self {
            buffer: Vec::with_capacity(4096),
            sizes: own > 0,
        }
    }

    fn read(&mut self, path: &str) -> Result<&[u8], Refusal> {
        let of = |error: std::io::Error| {
            Refusal::from(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        self.buffer.clear();
        let mut file = File::open(path).map_err(of)?;
        file.read_to_end(&mut self.buffer).map_err(of)?;
        Ok(&self.buffer)
    }

    /// The inode of the table, which differs for another process, and the number of descriptors.
    pub(super) fn table(&mut self, pid: Pid) -> Result<(u64, Result<u64, Refusal>), Refusal> {
        let path = format!("/proc/{pid}/fd");
        let stat = rustix::fs::stat(path.as_str())?;
        let count = if self.sizes {
            Ok(u64::try_from(stat.st_size).unwrap_or_default())
        } else {
            listed(&path)
        };
        Ok((stat.st_ino, count))
    }

    pub(super) fn state(&mut self, pid: Pid) -> Result<State, Refusal> {
        let bytes = self.read(&format!("/proc/{pid}/stat"))?;
        let stat = ProcStat::parse(bytes).ok_or(Refusal::Gone)?;
        Ok(State {
            start_ticks: stat.start_ticks,
            zombie: stat.is_ending(),
        })
    }

    pub(super) fn limits(&mut self, pid: Pid) -> Result<Limits, Refusal> {
        self.read(&format!("/proc/{pid}/limits"))
            .map(limits::open_files)
            .map(|(soft, hard)| Limits { soft, hard })
    }

    /// Slots of its table: all numbers in use are lower, and the table never shrinks.
    pub(super) fn slots(&mut self, pid: Pid) -> Result<Option<u64>, Refusal> {
        let bytes = self.read(&format!("/proc/{pid}/status"))?;
        Ok(ProcStatus::parse(bytes).fd_size.filter(|slots| *slots > 0))
    }

    /// Resident memory in bytes.
    pub(super) fn resident(&mut self, pid: Pid) -> Result<u64, Refusal> {
        let bytes = self.read(&format!("/proc/{pid}/statm"))?;
        statm::resident(bytes, rustix::param::page_size()).ok_or(Refusal::Gone)
    }

    /// Its proportional share of memory: shared pages are divided equally.
    pub(super) fn proportional(&mut self, pid: Pid) -> Result<u64, Refusal> {
        let bytes = self.read(&format!("/proc/{pid}/smaps_rollup"))?;
        smaps::proportional(bytes).ok_or(Refusal::Gone)
    }

    /// The children of a process, by the lists of its threads.
    pub(super) fn children(&mut self, pid: Pid) -> Result<Vec<Pid>, Refusal> {
        let dir = open_dir(&format!("/proc/{pid}/task"))?;
        let mut found = Vec::new();
        for task in numbers(&dir)? {
            match self.read(&format!("/proc/{pid}/task/{task}/children")) {
                Ok(list) => found.extend(children::pids(list)),
                // A thread that exited has left its children to another one.
                Err(Refusal::Gone) if !task_exists(pid, task) => {}
                // The kernel was built without these lists.
                Err(Refusal::Gone) => return Err(Refusal::Other(Errno::NOSYS)),
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(found)
    }
}

fn task_exists(pid: Pid, task: u64) -> bool {
    rustix::fs::stat(format!("/proc/{pid}/task/{task}")).is_ok()
}

fn open_dir(path: &str) -> Result<OwnedFd, Refusal> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The numeric names in a directory.
fn numbers(dir: &OwnedFd) -> Result<Vec<u64>, Refusal> {
    let mut buffer = vec![MaybeUninit::uninit(); 1 << 13];
    let mut all = Vec::new();
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        all.extend(
            entry
                .file_name()
                .to_str()
                .ok()
                .and_then(|name| name.parse::<u64>().ok()),
        );
    }
    Ok(all)
}

fn listed(path: &str) -> Result<u64, Refusal> {
    Ok(numbers(&open_dir(path)?)?.len() as u64)
}

/// The highest number that is the program's own, without protection's placeholders.
pub(super) fn highest_of_program(pid: Pid, slots: u64) -> Result<u64, Refusal> {
    let found = highest(pid, slots)?;
    if !is_kept(pid, found) {
        return Ok(found);
    }
    let mut all = numbers(&open_dir(&format!("/proc/{pid}/fd"))?)?;
    all.sort_unstable();
    let own = all.into_iter().rev().find(|number| !is_kept(pid, *number));
    own.ok_or(Refusal::Gone)
}

/// Whether this number is fdguard's placeholder in a protected process.
fn is_kept(pid: Pid, number: u64) -> bool {
    let info = std::fs::read(format!("/proc/{pid}/fdinfo/{number}")).unwrap_or_default();
    let target = std::fs::read_link(format!("/proc/{pid}/fd/{number}"));
    Fdinfo::parse(&info).is_kept() && target.is_ok_and(|target| target.as_os_str() == "/dev/null")
}

/// The highest number in use, without listing all: the kernel's directory of a table can be entered
/// at a number, so a dozen queries for the next one find the last. 10,000 descriptors cost as much
/// as ten.
pub(super) fn highest(pid: Pid, slots: u64) -> Result<u64, Refusal> {
    let dir = open_dir(&format!("/proc/{pid}/fd"))?;
    let (mut found, mut above) = match from(&dir, 0)? {
        Some(first) => (first, slots.max(first + 1)),
        None => return Err(Refusal::Gone),
    };
    // There is nothing from `above` on: the table may have grown since its size was read.
    while let Some(higher) = from(&dir, above)? {
        found = higher;
        above = above.saturating_mul(2).max(higher + 1);
    }
    while found + 1 < above {
        let middle = found + (above - found) / 2;
        match from(&dir, middle)? {
            Some(higher) => found = higher.clamp(middle, above - 1),
            None => above = middle,
        }
    }
    Ok(found)
}

/// The first number in use from this one on.
fn from(dir: &OwnedFd, number: u64) -> Result<Option<u64>, Refusal> {
    // `.` and `..` come before the numbers.
    rustix::fs::seek(dir, SeekFrom::Start(number + 2))?;
    let mut buffer = [MaybeUninit::uninit(); 128];
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry
            .file_name()
            .to_str()
            .ok()
            .and_then(|name| name.parse::<u64>().ok());
        if let Some(found) = name.filter(|found| *found >= number) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use testkit::{VictimLaunch, victim_path};

    use super::{Files, Refusal, highest};

    #[test]
    fn a_process_is_counted_and_its_highest_number_found_without_a_list() {
        let mut victim = VictimLaunch::program(&victim_path("leaker"))
            .nofile(4096)
            .start();
        let mut files = Files::new();
        for more in [0, 1, 61, 200, 1500] {
            let said = victim.tell(&format!("{more}"));
            let (_, count) = files.table(victim.pid()).unwrap();
            assert_eq!(Some(count.unwrap()), said["count"].as_u64());
            let slots = files.slots(victim.pid()).unwrap().unwrap();
            // Its temporary descriptors come and go; the victim knows its own.
            let found = highest(victim.pid(), slots).unwrap();
            assert_eq!(Some(found), said["highest"].as_u64(), "{said}");
            assert_eq!(
                highest(victim.pid(), 64).unwrap(),
                found,
                "from a size that was read too early"
            );
        }
        let state = files.state(victim.pid()).unwrap();
        assert!(!state.zombie && state.start_ticks > 0);
        assert_eq!(files.limits(victim.pid()).unwrap().soft, Some(4096));
        assert!(files.resident(victim.pid()).unwrap() > 100_000);
    }

    /// Because of this, 18 of 21 protected services exceeded their budget when they started.
    #[test]
    fn what_protection_keeps_is_not_the_programs_highest_number() {
        use rustix::fs::{Mode, OFlags, open};
        use rustix::io::fcntl_dupfd_cloexec;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let own = open("/dev/null", flags, Mode::empty()).unwrap();
        let kept = open("/dev/null", flags | OFlags::NOFOLLOW, Mode::empty()).unwrap();
        let pid = std::process::id();
        let _program = fcntl_dupfd_cloexec(&own, 300).unwrap();
        let _graves = [320, 321, 900].map(|least| fcntl_dupfd_cloexec(&kept, least).unwrap());
        assert_eq!(highest(pid, 64).unwrap(), 900);
        assert_eq!(super::highest_of_program(pid, 64).unwrap(), 300);
    }

    #[test]
    fn who_has_ended_is_gone_and_not_empty() {
        let gone = u32::MAX / 2;
        assert_eq!(Files::new().table(gone), Err(Refusal::Gone));
        assert_eq!(Files::new().state(gone), Err(Refusal::Gone));
    }
}
