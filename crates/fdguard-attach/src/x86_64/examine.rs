//! Looks at a process without stopping it, and refuses what cannot be done safely.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use fdguard_proc::status::{ProcStatus, has_thread_features, number_of};
use fdguard_proc::{ProcKey, auxv, process, stat::ProcStat};

use crate::Refusal;
use crate::refusal::Denial;
use crate::x86_64::image::{Functions, Image, Machine};
use crate::x86_64::maps::{Module, modules, regions};
use crate::x86_64::memory::Memory;
use crate::x86_64::thread::own_tid;

const X86_64: u64 = 62;

/// What is known of a process that can be entered.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) key: ProcKey,
    pub(crate) memory: Memory,
    /// The first instruction of the program, which never runs again.
    pub(crate) entry: u64,
    /// The start of the dynamic loader.
    pub(crate) loader: u64,
    /// The start of the C library.
    pub(crate) libc: u64,
    pub(crate) functions: Arc<Functions>,
}

pub(crate) fn examine(pid: u32) -> Result<Examined, Refusal> {
    let key = identify(pid)?;
    check_threads(pid)?;
    let memory = Memory::open(pid).map_err(|error| unreadable(pid, &error))?;
    let maps = fs::read(format!("/proc/{pid}/maps")).map_err(|error| unreadable(pid, &error))?;
    let modules = modules(&regions(&maps));
    let program = program(pid, &memory, &modules)?;
    let vector = fs::read(format!("/proc/{pid}/auxv")).map_err(|error| unreadable(pid, &error))?;
    let auxiliary = |key| auxv::value(&vector, key).filter(|value| *value != 0);
    let entry = auxiliary(auxv::ENTRY).ok_or(Refusal::NoEntryPoint)?;
    let loader = auxiliary(auxv::BASE).unwrap_or(program.start);
    let (libc, functions) = libc(&memory, &modules, &program)?;
    if ProcKey::read(pid).ok() != Some(key) {
        return Err(Refusal::Gone);
    }
    Ok(Examined {
        key,
        memory,
        entry,
        loader,
        libc,
        functions: Arc::new(functions),
    })
}

fn identify(pid: u32) -> Result<ProcKey, Refusal> {
    if pid == std::process::id() {
        return Err(Refusal::Itself);
    }
    let bytes = fs::read(format!("/proc/{pid}/stat")).map_err(|_gone| Refusal::Gone)?;
    let stat = ProcStat::parse(&bytes).ok_or(Refusal::Gone)?;
    let status = fs::read(format!("/proc/{pid}/status")).map_err(|_gone| Refusal::Gone)?;
    if stat.kernel_thread || ProcStatus::parse(&status).is_kernel_thread() {
        return Err(Refusal::KernelThread);
    }
    if matches!(stat.state, b'Z' | b'X') || stat.has_ended() {
        return Err(Refusal::Zombie);
    }
    match number_of(&status, b"Tgid").and_then(|number| u32::try_from(number).ok()) {
        Some(process) if process != pid => Err(Refusal::Thread { process }),
        _ => Ok(stat.key(pid)),
    }
}

/// Facts of each thread; also asked again right before a thread is stopped.
pub(crate) fn check_threads(pid: u32) -> Result<(), Refusal> {
    let listing = fs::read_dir(format!("/proc/{pid}/task")).map_err(|_gone| Refusal::Gone)?;
    for entry in listing.flatten() {
        let name = entry.file_name();
        let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A thread that has just ended is none.
        if let Ok(status) = fs::read(entry.path().join("status")) {
            check_thread(thread, &status, &process::name)?;
        }
    }
    Ok(())
}

fn check_thread(
    thread: u32,
    status: &[u8],
    name: &dyn Fn(u32) -> Option<String>,
) -> Result<(), Refusal> {
    // A thread that was killed while it was stopped is traced by this thread until it has ended.
    let own = own_tid();
    if let Some(tracer) = number_of(status, b"TracerPid").filter(|pid| *pid > 0 && *pid != own) {
        let tracer = u32::try_from(tracer).unwrap_or(0);
        let name = name(tracer).unwrap_or_else(|| "unknown".to_owned());
        return Err(Refusal::Traced { tracer, name });
    }
    if ProcStatus::parse(status).state == Some(b'T') {
        return Err(Refusal::Stopped);
    }
    if number_of(status, b"Seccomp").is_some_and(|mode| mode > 0) {
        return Err(Refusal::Seccomp { thread });
    }
    if has_thread_features(status) {
        return Err(Refusal::ShadowStack { thread });
    }
    Ok(())
}

/// The module of the program itself.
fn program(pid: u32, memory: &Memory, modules: &[Module]) -> Result<Module, Refusal> {
    use std::os::unix::ffi::OsStrExt as _;
    let link = fs::read_link(format!("/proc/{pid}/exe"));
    let link = link.map_err(|error| unreadable(pid, &error))?;
    let found = modules
        .iter()
        .find(|module| module.path == link.as_os_str().as_bytes());
    let module = found.ok_or_else(|| Refusal::Unreadable {
        reason: "its program is not in its memory".to_owned(),
    })?;
    let header = memory.bytes_up_to(module.start, 20);
    let machine = Machine::read(&header).ok_or_else(|| Refusal::Unreadable {
        reason: "its program is not an ELF file".to_owned(),
    })?;
    match (machine.class, machine.machine) {
        (2, X86_64) => Ok(module.clone()),
        (1, X86_64) => Err(Refusal::Architecture { kind: "x32" }),
        (1, _) => Err(Refusal::Architecture { kind: "32-bit" }),
        _ => Err(Refusal::Architecture { kind: "foreign" }),
    }
}

fn libc(
    memory: &Memory,
    modules: &[Module],
    program: &Module,
) -> Result<(u64, Functions), Refusal> {
    let image = Image::read(memory, program.start).map_err(|error| Refusal::Unreadable {
        reason: error.to_string(),
    })?;
    match &image.interpreter {
        Some(loader) if contains(loader, b"ld-musl") => return Err(Refusal::Musl),
        // Started as `ld.so PROGRAM`, the loader is the program.
        None if !program.name().starts_with(b"ld-") || !image.is_dynamic() => {
            return Err(Refusal::Static);
        }
        _ => {}
    }
    if modules
        .iter()
        .any(|module| module.name().starts_with(b"libc-2."))
    {
        return Err(Refusal::OldGlibc);
    }
    // The first one that is loaded is above the others.
    let mut found = modules.iter().rev();
    let module = found.find(|module| module.name() == b"libc.so.6");
    let module = module.ok_or(Refusal::NoGlibc)?;
    let functions = Image::read(memory, module.start).and_then(|image| image.functions(memory));
    let functions = functions.map_err(|error| Refusal::Unreadable {
        reason: error.to_string(),
    })?;
    let needed: [&[u8]; 4] = [b"dlopen", b"dlsym", b"dlerror", b"__errno_location"];
    if needed.iter().all(|name| functions.address(name).is_some()) {
        Ok((module.start, functions))
    } else {
        Err(Refusal::OldGlibc)
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn unreadable(pid: u32, error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::NotFound => Refusal::Gone,
        io::ErrorKind::PermissionDenied => denial(pid).map_or(Refusal::Denied, Denial::reason),
        _ => Refusal::Unreadable {
            reason: error.to_string(),
        },
    }
}

fn denial(pid: u32) -> Option<Denial> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    Some(Denial {
        own_uid: rustix::process::geteuid().as_raw(),
        uid: ProcStatus::parse(&status).uid?,
        file_uid: fs::metadata(format!("/proc/{pid}/stat")).ok()?.uid(),
        yama_scope: scope.and_then(|scope| scope.trim().parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::check_thread;
    use crate::Refusal;

    fn judged(status: &str) -> Result<(), Refusal> {
        check_thread(7, status.as_bytes(), &|_| Some("strace".to_owned()))
    }

    #[test]
    fn the_facts_of_a_thread() {
        let plain = "Name:\tx\nState:\tS (sleeping)\nTracerPid:\t0\nSeccomp:\t0\n\
                     Seccomp_filters:\t0\nx86_Thread_features:\t\nx86_Thread_features_locked:\t\n";
        assert_eq!(judged(plain), Ok(()));
        let traced = plain.replace("TracerPid:\t0", "TracerPid:\t12");
        let wanted = Refusal::Traced {
            tracer: 12,
            name: "strace".to_owned(),
        };
        assert_eq!(judged(&traced), Err(wanted));
        let stopped = plain.replace("S (sleeping)", "T (stopped)");
        assert_eq!(judged(&stopped), Err(Refusal::Stopped));
        for mode in ["1", "2"] {
            let filtered = plain.replace("Seccomp:\t0", &format!("Seccomp:\t{mode}"));
            assert_eq!(judged(&filtered), Err(Refusal::Seccomp { thread: 7 }));
        }
        let guarded = plain.replace("features:\t\n", "features:\tshstk wrss \n");
        assert_eq!(judged(&guarded), Err(Refusal::ShadowStack { thread: 7 }));
    }
}
