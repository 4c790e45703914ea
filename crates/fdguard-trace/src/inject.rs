//! The source of processes that were already running: fdguard put the library into them, and each
//! records in a directory of its own.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fdguard_attach::{RemoteCall, Target};
use fdguard_core::{Gap, TraceKey};
use fdguard_proc::maps::{mappings, unescaped};
use fdguard_proc::process;
use fdguard_proc::status::ProcStatus;
use fdguard_wire::{ATTACH, AttachAnswer, DETACH, EventKind, WAKE_INSPECTOR};

use crate::attach_dir::{AttachDir, FileOwner, PARENTS};
use crate::launch::Options;
use crate::listener::monotonic;
use crate::module_files::ModuleFiles;
use crate::node::{AgentFailure, NodeProgram};
use crate::observed_trace::{ObservedTrace, is_alive};
use crate::pid_namespace::PidNames;
use crate::protection::Protection;
use crate::record_files::{RecordFiles, is_outlived};
use crate::ring::{DrainedEvents, Ring};
use crate::source::{EventReader, TraceSource};
use crate::table::ProcessTable;
use crate::{BlindReason, Error};
use crate::{stale_dirs, trace_dir};

/// The processes that fdguard has attached to. Dropping it detaches.
#[derive(Debug, Default)]
pub struct InjectSource {
    attached: Mutex<Vec<Arc<AttachedProcess>>>,
    /// Where the records of each process are.
    owners: Mutex<HashMap<TraceKey, RecordOwner>>,
    is_over: AtomicBool,
    /// When it was over, by the monotonic clock; 0 before.
    left_at: AtomicU64,
}

/// A file of records: the attached process in whose directory it is, and its key there.
#[derive(Clone, Debug)]
struct RecordOwner {
    process: Arc<AttachedProcess>,
    key: TraceKey,
}

/// One attached process.
#[derive(Debug)]
struct AttachedProcess {
    pid: u32,
    target: Mutex<Target>,
    dir: AttachDir,
    pids: PidNames,
    modules: ModuleFiles,
    /// What became of the agent in a Node program.
    agent: Mutex<Option<NodeAgent>>,
}

/// The agent for the lines of a Node program.
#[derive(Debug)]
struct NodeAgent {
    program: Option<NodeProgram>,
    failure: AgentFailure,
}

/// Why a process was not entered or not left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachFailure {
    /// The reason, without the process.
    pub reason: String,
    /// What works instead; starts with a verb.
    pub way: String,
    /// Whether the kernel can trace the process instead.
    pub by_kernel: bool,
}

impl InjectSource {
    /// Checks whether a process can be attached to, without touching it.
    pub(crate) fn examine(pid: u32) -> Result<Target, AttachFailure> {
        if ObservedTrace::find(pid).is_ok() {
            return Err(AttachFailure::answered(AttachAnswer::Taken as i32));
        }
        Target::examine(pid).map_err(|refusal| AttachFailure::refused(&refusal))
    }

    /// Puts the library into a process; returns how long one of its threads did not do its work.
    pub(crate) fn attach(
        &self,
        pid: u32,
        target: Target,
        options: &Options,
    ) -> Result<Duration, AttachFailure> {
        let status = std::fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
        let owner = FileOwner::of(&ProcStatus::parse(&status));
        let owner = owner.ok_or_else(|| AttachFailure::other("no such process"))?;
        let mut failure = AttachFailure::other("it has no directory for its records");
        for parent in PARENTS {
            let dir = match AttachDir::create(pid, parent, owner) {
                Ok(dir) => dir,
                Err(error) => {
                    failure = AttachFailure::other(format!("cannot create {parent}/…: {error}"));
                    continue;
                }
            };
            let request = request(dir.seen().as_os_str().as_bytes(), options);
            let enter = || {
                let call = target.call(trace_dir::library(), ATTACH, &request);
                call.map_err(|error| AttachFailure::failed(&error))
            };
            let mut call = enter()?;
            let is_taken = AttachAnswer::of(call.returned) == Some(AttachAnswer::Taken);
            if is_taken && !has_tracer(pid) {
                // The fdguard that attached was killed, and the library has not noticed yet.
                leave(&target)?;
                call = enter()?;
            }
            match AttachAnswer::of(call.returned) {
                Some(AttachAnswer::Done) => {
                    self.add(AttachedProcess {
                        pid,
                        target: Mutex::new(target),
                        dir,
                        pids: PidNames::of(pid),
                        modules: ModuleFiles::new(pid),
                        agent: Mutex::default(),
                    });
                    return Ok(call.stop);
                }
                Some(AttachAnswer::NoTable) => failure = AttachFailure::answered(call.returned),
                _ => return Err(AttachFailure::answered(call.returned)),
            }
        }
        Err(failure)
    }

    /// Gives an attached Node program the agent for its lines; reports a failure, which becomes a
    /// gap. `begin` hears of the port before anything happens. Also returns how long a thread was
    /// stopped.
    pub(crate) fn add_lines(
        &self,
        pid: u32,
        is_unwanted: bool,
        begin: impl FnOnce(u16),
    ) -> Option<(Result<(), String>, Duration)> {
        let process = self.attached().into_iter().find(|one| one.pid == pid)?;
        let examined = NodeProgram::examine(pid)?;
        let mut stop = Duration::ZERO;
        let (program, installed) = match examined {
            _ if is_unwanted => (None, Err(AgentFailure::unwanted(pid))),
            Ok(program) => {
                begin(program.port());
                let installed = program.install(|request| {
                    let call = process.wake_inspector(request)?;
                    stop = call.stop;
                    Ok(call.returned)
                });
                (Some(program), installed)
            }
            Err(failure) => (None, Err(failure)),
        };
        let installed = installed.map_err(|failure| {
            let reason = failure.reason().to_owned();
            *lock(&process.agent) = Some(NodeAgent { program, failure });
            reason
        });
        Some((installed, stop))
    }

    fn add(&self, process: AttachedProcess) {
        lock(&self.attached).push(Arc::new(process));
    }

    fn attached(&self) -> Vec<Arc<AttachedProcess>> {
        lock(&self.attached).clone()
    }

    /// Takes the library out of every process that still has it, forked children included. Returns
    /// the processes that could not be left.
    pub(crate) fn detach(&self) -> Vec<(u32, AttachFailure)> {
        if self.is_over.swap(true, Ordering::AcqRel) {
            return Vec::new();
        }
        self.left_at.store(monotonic().max(1), Ordering::Release);
        let mut failures = Vec::new();
        let attached = self.attached();
        let roots: BTreeSet<u32> = attached.iter().map(|one| one.pid).collect();
        for one in &attached {
            one.close_inspector();
            if is_alive(one.pid)
                && one.holds_library()
                && let Err(failure) = leave(&lock(&one.target))
            {
                failures.push((one.pid, failure));
            }
        }
        let owners = lock(&self.owners);
        let forked = owners.keys().map(|key| key.pid);
        let forked: BTreeSet<u32> = forked.filter(|pid| !roots.contains(pid)).collect();
        let recording = |pid: &u32| {
            let records = owners.iter().filter(|(key, _)| key.pid == *pid);
            let mut records = records.map(|(_, owner)| owner);
            is_alive(*pid) && records.any(|one| !is_outlived(one.key, *pid))
        };
        for pid in forked.into_iter().filter(recording) {
            let left = Target::examine(pid).map_err(|refusal| AttachFailure::refused(&refusal));
            if let Err(failure) = left.and_then(|target| leave(&target)) {
                failures.push((pid, failure));
            }
        }
        failures
    }

    fn owner(&self, key: TraceKey) -> io::Result<RecordOwner> {
        let found = lock(&self.owners).get(&key).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Whether an fdguard that runs holds the directory in which the process records.
fn has_tracer(pid: u32) -> bool {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let dirs = mappings(&maps).filter_map(|mapping| {
        let path = PathBuf::from(OsString::from_vec(unescaped(mapping.path)));
        let dir = path.parent()?.to_owned();
        let name = dir.file_name()?.as_bytes();
        name.starts_with(stale_dirs::PREFIX.as_bytes())
            .then_some(dir)
    });
    // As the process sees it.
    let seen = |dir: PathBuf| PathBuf::from(format!("/proc/{pid}/root{}", dir.display()));
    dirs.map(seen).any(|dir| stale_dirs::is_claimed(&dir))
}

/// The library ends the recording and restores what it changed.
fn leave(target: &Target) -> Result<(), AttachFailure> {
    let call = target.call(trace_dir::library(), DETACH, &[]);
    let call = call.map_err(|error| AttachFailure::failed(&error))?;
    match AttachAnswer::of(call.returned) {
        Some(AttachAnswer::Done) => Ok(()),
        _ => Err(AttachFailure::answered(call.returned)),
    }
}

impl AttachedProcess {
    fn files(&self) -> RecordFiles {
        RecordFiles::new(self.dir.path())
    }

    /// Calls the library's function that wakes Node's inspector.
    fn wake_inspector(&self, request: &[u8]) -> Result<RemoteCall, String> {
        let call = lock(&self.target).call(trace_dir::library(), WAKE_INSPECTOR, request);
        call.map_err(|error| error.to_string())
    }

    /// Closes an inspector that fdguard asked for and that opened too late.
    fn close_inspector(&self) {
        if let Some(agent) = &*lock(&self.agent)
            && agent.failure.may_open()
            && let Some(program) = &agent.program
        {
            program.close_late();
        }
    }

    /// Whether it still runs the program that was entered.
    fn holds_library(&self) -> bool {
        let keys = self.files().keys().unwrap_or_default();
        let own = keys
            .iter()
            .filter(|key| self.pids.outside(key.pid) == Some(self.pid));
        let latest = own.max_by_key(|key| key.began);
        latest.is_none_or(|key| !is_outlived(*key, self.pid))
    }

    /// The key that fdguard uses for a key in the directory.
    fn outside(&self, key: TraceKey) -> Option<TraceKey> {
        let pid = self.pids.outside(key.pid)?;
        Some(TraceKey { pid, ..key })
    }
}

impl TraceSource for InjectSource {
    fn backend(&self) -> &'static str {
        "inject"
    }

    fn blind(&self) -> Option<BlindReason> {
        None
    }

    fn is_late(&self) -> bool {
        true
    }

    fn processes(&self) -> Result<Vec<TraceKey>, Error> {
        let mut owners = HashMap::new();
        for process in self.attached() {
            for key in process.files().keys()? {
                if let Some(outside) = process.outside(key) {
                    let process = Arc::clone(&process);
                    owners.insert(outside, RecordOwner { process, key });
                }
            }
        }
        let mut keys: Vec<TraceKey> = owners.keys().copied().collect();
        keys.sort_unstable();
        *lock(&self.owners) = owners;
        Ok(keys)
    }

    fn events(&self, key: TraceKey) -> io::Result<Box<dyn EventReader>> {
        let owner = self.owner(key)?;
        let ring = owner.process.files().ring(owner.key)?;
        Ok(match owner.process.pids.is_same() {
            true => Box::new(ring),
            false => Box::new(ForeignRing(ring)),
        })
    }

    fn table(&self, key: TraceKey) -> io::Result<Option<ProcessTable>> {
        let RecordOwner { process, key: own } = self.owner(key)?;
        let Some(mut table) = process.files().table(own)? else {
            return Ok(None);
        };
        let parent = table.parent.and_then(|parent| process.outside(parent));
        table.rename(key, parent);
        table.relocate(|module| process.modules.locate(module));
        Ok(Some(table))
    }

    fn is_outlived(&self, key: TraceKey) -> bool {
        // A library that was told to leave keeps nothing mapped.
        let is_over = self.is_over.load(Ordering::Acquire);
        let owner = self.owner(key).ok().filter(|_| !is_over);
        owner.is_some_and(|owner| is_outlived(owner.key, key.pid))
    }

    fn unloaded(&self) -> BlindReason {
        BlindReason::Replaced
    }

    fn left_at(&self) -> Option<u64> {
        Some(self.left_at.load(Ordering::Acquire)).filter(|at| *at != 0)
    }

    fn gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for process in self.attached() {
            gaps.extend(lock(&process.agent).iter().map(|agent| agent.failure.gap()));
            for module in process.modules.unreadable() {
                gaps.push(Gap::new(
                    format!("the lines in {}", module.display()),
                    format!(
                        "process {} has it mapped, and fdguard cannot open that file: it was replaced, or is in another root",
                        process.pid
                    ),
                    "run fdguard with sudo, or restart the program with the new file",
                ));
            }
        }
        gaps
    }

    fn remove(&self, key: TraceKey) {
        if let Ok(owner) = self.owner(key) {
            owner.process.files().remove(owner.key);
        }
    }
}

impl Drop for InjectSource {
    fn drop(&mut self) {
        // A library that could not be told finds out that its directory is gone.
        drop(self.detach());
    }
}

/// The events of a process in another pid namespace, without those about pids, which mean other
/// processes here.
#[derive(Debug)]
struct ForeignRing(Ring);

impl EventReader for ForeignRing {
    fn drain(&mut self, now: u64, is_end: bool) -> io::Result<DrainedEvents> {
        let mut drained = self.0.drain(now, is_end)?;
        let about_pids = |kind| matches!(kind, EventKind::Started | EventKind::Reaped);
        for event in drained.events.iter_mut().filter(|one| about_pids(one.kind)) {
            event.kind = EventKind::Unknown;
        }
        Ok(drained)
    }
}

impl AttachFailure {
    fn refused(refusal: &fdguard_attach::Refusal) -> Self {
        let failure = Self::other(refusal.to_string()).or_way(refusal.remedy());
        Self {
            by_kernel: refusal.is_of_the_library(),
            ..failure
        }
    }

    fn failed(error: &fdguard_attach::Error) -> Self {
        let failure = Self::other(error.to_string()).or_way(error.remedy());
        Self {
            by_kernel: true,
            ..failure
        }
    }

    /// The same with a better way, if there is one.
    fn or_way(self, way: Option<&str>) -> Self {
        let way = way.map_or(self.way, str::to_owned);
        Self { way, ..self }
    }

    pub(crate) fn other(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            way: "start it with fdguard trace -- COMMAND, or run fdguard watch PID for class, target and rate".to_owned(),
            by_kernel: false,
        }
    }

    /// The library's answer, in words.
    fn answered(number: i32) -> Self {
        let taken = "read that trace with fdguard trace --report PID, or end it first";
        let (reason, way) = match AttachAnswer::of(number) {
            Some(AttachAnswer::Taken) => ("another fdguard traces it already", Some(taken)),
            Some(AttachAnswer::BadRequest) => {
                ("it holds the library of another version of fdguard", None)
            }
            Some(AttachAnswer::NoTable) => (
                "it cannot create the file for its records (full disk, file size limit?)",
                None,
            ),
            Some(AttachAnswer::Untrusted) => (
                "the injected functions did not return what the C library returns; nothing was changed",
                None,
            ),
            Some(AttachAnswer::Done) | None => ("the injected library gave no valid answer", None),
        };
        Self::other(reason).or_way(way)
    }
}

/// The words of a request: the directory, then the variables that a launched program would have.
fn request(dir: &[u8], options: &Options) -> Vec<u8> {
    let mut variables = vec![("FDGUARD_FAREWELL", OsString::from("1"))];
    if options.users {
        variables.push(("FDGUARD_USERS", OsString::from("1")));
    }
    let protection = options.protect.as_ref();
    variables.extend(protection.map(Protection::variables).unwrap_or_default());
    let mut words = dir.to_vec();
    words.push(0);
    for (name, value) in variables {
        words.extend(name.as_bytes());
        words.push(b'=');
        words.extend(value.as_bytes());
        words.push(0);
    }
    words
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The command name of a process, for messages.
pub(crate) fn comm(pid: u32) -> String {
    process::name(pid).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use fdguard_wire::AttachRequest;

    use super::{AttachFailure, request};
    use crate::launch::Options;
    use crate::{Protection, ReportPolicy};

    #[test]
    fn a_request_is_read_back_by_the_library() {
        let protection = Protection::new(ReportPolicy::Fatal);
        let options = Options {
            protect: Some(protection),
            users: true,
            ..Options::default()
        };
        let bytes = request(b"/dev/shm/fdguard-trace-1", &options);
        let users = AttachRequest::read(&bytes)
            .unwrap()
            .variable(b"FDGUARD_USERS");
        assert_eq!(users, Some(&b"1"[..]));
        let read = AttachRequest::read(&bytes).unwrap();
        assert_eq!(read.dir(), b"/dev/shm/fdguard-trace-1");
        assert_eq!(read.variable(b"FDGUARD_PROTECT"), Some(&b"fatal"[..]));
        assert_eq!(read.variable(b"FDGUARD_FAREWELL"), Some(&b"1"[..]));
        let plain = request(b"/x", &Options::default());
        let read = AttachRequest::read(&plain).unwrap();
        assert_eq!(read.variable(b"FDGUARD_PROTECT"), None);
    }

    #[test]
    fn every_answer_has_a_reason_and_a_way() {
        for number in -1..6 {
            let failure = AttachFailure::answered(number);
            assert!(
                !failure.reason.is_empty() && failure.way.contains("fdguard"),
                "{number}"
            );
        }
        assert!(AttachFailure::answered(2).way.contains("--report"));
    }
}
