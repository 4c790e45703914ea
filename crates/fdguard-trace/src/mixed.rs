//! The source of a program that fdguard starts with the library: processes in its tree that became
//! programs without the library are followed by the kernel from then on, if it may.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use fdguard_core::event::CollectedEvents;
use fdguard_core::{Gap, TraceKey};
use fdguard_kernel::TracerScope;

use crate::go::is_go;
use crate::kernel::KernelSource;
use crate::observed_trace::{UntracedProgram, is_alive};
use crate::preload::PreloadSource;
use crate::source::{EventReader, TraceSource};
use crate::table::ProcessTable;
use crate::{BlindReason, Error};

/// The library, and the kernel where it is needed.
#[derive(Debug)]
pub(crate) struct MixedSource {
    library: PreloadSource,
    /// Loaded when it is first needed; `None` if the kernel refuses.
    kernel: OnceLock<Option<KernelSource>>,
    /// The processes that the kernel follows, with their names.
    followed: Mutex<BTreeMap<u32, String>>,
    examined: Mutex<ExaminedPrograms>,
}

/// Which programs that record are Go programs, which the library sees only a part of.
#[derive(Debug, Default)]
struct ExaminedPrograms {
    keys: BTreeSet<TraceKey>,
    /// By device, inode and size of their files.
    files: HashMap<(u64, u64, u64), bool>,
}

impl ExaminedPrograms {
    /// The Go programs among those that are new.
    fn new_go(&mut self, keys: &[TraceKey]) -> Vec<TraceKey> {
        self.keys.retain(|key| keys.binary_search(key).is_ok());
        let new = keys.iter().filter(|key| self.keys.insert(**key));
        let new: Vec<TraceKey> = new.copied().collect();
        new.into_iter().filter(|key| self.is_go(key.pid)).collect()
    }

    fn is_go(&mut self, pid: u32) -> bool {
        let exe = format!("/proc/{pid}/exe");
        let Ok(meta) = std::fs::metadata(&exe) else {
            return false;
        };
        let file = (meta.dev(), meta.ino(), meta.size());
        let known = self.files.entry(file);
        *known.or_insert_with(|| is_go(Path::new(&exe)))
    }
}

impl MixedSource {
    pub(crate) fn new(library: PreloadSource) -> Self {
        Self {
            library,
            kernel: OnceLock::new(),
            followed: Mutex::default(),
            examined: Mutex::default(),
        }
    }

    /// The kernel, if it was needed and may.
    fn kernel(&self) -> Option<&KernelSource> {
        self.kernel.get().and_then(Option::as_ref)
    }

    fn followed(&self) -> MutexGuard<'_, BTreeMap<u32, String>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The source that has the records of a program.
    fn owner(&self, key: TraceKey) -> &dyn TraceSource {
        match self.kernel().filter(|kernel| kernel.has(key)) {
            Some(kernel) => kernel,
            None => &self.library,
        }
    }

    /// Lets the kernel follow a process; false if it cannot.
    fn follow(&self, pid: u32, comm: &str) -> bool {
        if self.followed().contains_key(&pid) {
            return true;
        }
        let kernel = self
            .kernel
            .get_or_init(|| KernelSource::load(TracerScope::Followed).ok());
        let is_followed = kernel.as_ref().is_some_and(|one| one.follow(pid).is_ok());
        if is_followed {
            self.followed().insert(pid, comm.to_owned());
        }
        is_followed
    }
}

impl TraceSource for MixedSource {
    fn backend(&self) -> &'static str {
        match self.kernel() {
            Some(kernel) => kernel.backend(),
            None => self.library.backend(),
        }
    }

    fn collects(&self) -> CollectedEvents {
        self.library.collects()
    }

    fn blind(&self) -> Option<BlindReason> {
        self.library.blind()
    }

    fn processes(&self) -> Result<Vec<TraceKey>, Error> {
        let mut keys = self.library.processes()?;
        let go = {
            let mut examined = self.examined.lock().unwrap_or_else(PoisonError::into_inner);
            examined.new_go(&keys)
        };
        for key in go {
            let comm = fdguard_proc::process::name(key.pid).unwrap_or_default();
            self.follow(key.pid, &comm);
        }
        if let Some(kernel) = self.kernel() {
            keys.extend(kernel.processes()?);
            keys.sort_unstable();
        }
        Ok(keys)
    }

    fn events(&self, key: TraceKey) -> io::Result<Box<dyn EventReader>> {
        self.owner(key).events(key)
    }

    fn table(&self, key: TraceKey) -> io::Result<Option<ProcessTable>> {
        self.owner(key).table(key)
    }

    fn is_running(&self, key: TraceKey) -> bool {
        self.owner(key).is_running(key)
    }

    fn is_outlived(&self, key: TraceKey) -> bool {
        self.owner(key).is_outlived(key)
    }

    fn is_starting(&self, pid: u32) -> bool {
        self.library.is_starting(pid)
    }

    fn follows(&self, pid: u32) -> bool {
        self.followed().contains_key(&pid)
    }

    fn untraced(&self, pid: u32) -> Option<UntracedProgram> {
        let program = self.library.untraced(pid)?;
        let is_followed = is_alive(pid)
            && program.blind != BlindReason::OtherMachine
            && self.follow(pid, &program.comm);
        (!is_followed).then_some(program)
    }

    fn gaps(&self) -> Vec<Gap> {
        let mut gaps = self.library.gaps();
        let followed = self.followed();
        for (pid, comm) in followed.iter() {
            gaps.push(Gap::new(
                format!("what {comm} (pid {pid}) opened in its first moments"),
                "fdguard's library does not see into it, and the kernel traces it since fdguard noticed",
                "trace with --source ebpf, to see it from its first instruction on",
            ));
        }
        gaps.extend(self.kernel().map(TraceSource::gaps).unwrap_or_default());
        gaps
    }

    fn waiting(&self) -> Vec<(TraceKey, SystemTime)> {
        self.library.waiting()
    }

    fn release(&self, key: TraceKey) {
        self.library.release(key);
    }

    fn release_all(&self) {
        self.library.release_all();
    }

    fn remove(&self, key: TraceKey) {
        self.owner(key).remove(key);
    }
}
