//! The injected library as a file: what it imports, what it exports, and that it is the only one.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use fdguard_trace::{BlindReason, TracedProgram};
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _};

use super::run::victim;

/// Everything that the library may import from the C library.
const IMPORTS: &[&str] = &[
    "__errno_location",
    "bcmp",
    "environ",
    "getenv",
    "memcpy",
    "memmove",
    "memset",
    "strlen",
];
/// It starts without these: every shared object offers the first four to the linker, and programs
/// of glibc before 2.34 have `dlsym` only if they load libdl.
const WEAK: &[&str] = &[
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
    "__cxa_finalize",
    "__gmon_start__",
    "dl_iterate_phdr",
    "dlsym",
];

/// Every name that it interposes.
const EXPORTS: &[&str] = &[
    "_Exit",
    "_Fork",
    "__clone",
    "__fdelt_chk",
    "__fork",
    "__fxstat",
    "__fxstat64",
    "__mq_open_2",
    "__open64_2",
    "__open_2",
    "__openat64_2",
    "__openat_2",
    "__poll_chk",
    "__ppoll_chk",
    "__pread64_chk",
    "__pread_chk",
    "__read_chk",
    "__recv_chk",
    "__recvfrom_chk",
    "__vfork",
    "__waitpid",
    "_exit",
    "accept",
    "accept4",
    "access",
    "clone",
    "close",
    "close_range",
    "closedir",
    "closefrom",
    "connect",
    "creat",
    "creat64",
    "dlclose",
    "dup",
    "dup2",
    "dup3",
    "epoll_create",
    "epoll_create1",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "eventfd",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "faccessat",
    "fanotify_init",
    "fchdir",
    "fchmodat",
    "fchownat",
    "fclose",
    "fcntl",
    "fcntl64",
    "fdatasync",
    "fdopen",
    "fdopendir",
    "fexecve",
    "fopen",
    "fopen64",
    "fork",
    "forkpty",
    "fpathconf",
    "freopen",
    "freopen64",
    "fstat",
    "fstat64",
    "fstatat",
    "fstatat64",
    "fstatfs",
    "fstatfs64",
    "fstatvfs",
    "fstatvfs64",
    "fsync",
    "ftruncate",
    "ftruncate64",
    "getpt",
    "inotify_init",
    "inotify_init1",
    "lockf",
    "lockf64",
    "memfd_create",
    "mkdirat",
    "mkostemp",
    "mkostemp64",
    "mkostemps",
    "mkostemps64",
    "mkstemp",
    "mkstemp64",
    "mkstemps",
    "mkstemps64",
    "mq_open",
    "munmap",
    "open",
    "open64",
    "openat",
    "openat64",
    "opendir",
    "openpty",
    "pclose",
    "pidfd_open",
    "pipe",
    "pipe2",
    "poll",
    "popen",
    "posix_openpt",
    "posix_spawn",
    "posix_spawnp",
    "ppoll",
    "prctl",
    "pread",
    "pread64",
    "preadv",
    "preadv64",
    "prlimit",
    "prlimit64",
    "pselect",
    "pthread_create",
    "pwrite",
    "pwrite64",
    "pwritev",
    "pwritev64",
    "read",
    "readlinkat",
    "readv",
    "recv",
    "recvfrom",
    "recvmsg",
    "select",
    "send",
    "sendfile",
    "sendfile64",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "setrlimit",
    "setrlimit64",
    "shm_open",
    "sigaction",
    "signalfd",
    "socket",
    "socketpair",
    "statx",
    "syscall",
    "system",
    "timerfd_create",
    "tmpfile",
    "tmpfile64",
    "unlinkat",
    "unshare",
    "utimensat",
    "vfork",
    "wait",
    "wait3",
    "wait4",
    "waitid",
    "waitpid",
    "write",
    "writev",
];

fn with_library<T>(work: impl FnOnce(&object::File<'_>) -> T) -> T {
    let bytes = fdguard_trace::library();
    work(&object::File::parse(bytes).unwrap())
}

#[test]
fn it_needs_no_library_and_a_handful_of_functions() {
    with_library(|file| {
        let asked: BTreeSet<String> = file
            .dynamic_symbols()
            .filter(|symbol| symbol.is_undefined() && !symbol.name().unwrap().is_empty())
            .map(|symbol| symbol.name().unwrap().to_owned())
            .collect();
        let allowed: BTreeSet<String> = IMPORTS
            .iter()
            .chain(WEAK)
            .map(|name| (*name).to_owned())
            .collect();
        let more: Vec<&String> = asked.difference(&allowed).collect();
        assert!(more.is_empty(), "{more:?}");
        for symbol in file
            .dynamic_symbols()
            .filter(object::ObjectSymbol::is_undefined)
        {
            let name = symbol.name().unwrap();
            assert_eq!(symbol.is_weak(), WEAK.contains(&name), "{name}");
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("library.so");
    std::fs::write(&path, fdguard_trace::library()).unwrap();
    let said = Command::new("readelf")
        .arg("-d")
        .arg(&path)
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&said.stdout).contains("NEEDED"));
}

/// The versions of symbols that a file needs, as `GLIBC_2.17`.
fn version_needs(bytes: &[u8]) -> BTreeSet<String> {
    let file = ElfFile64::<Endianness>::parse(bytes).unwrap();
    let (endian, sections) = (file.endian(), file.elf_section_table());
    let mut names = BTreeSet::new();
    let Some((mut files, link)) = sections.gnu_verneed(endian, bytes).unwrap() else {
        return names;
    };
    let strings = sections.strings(endian, bytes, link).unwrap();
    while let Some((_, mut needs)) = files.next().unwrap() {
        while let Some(need) = needs.next().unwrap() {
            let name = need.name(endian, strings).unwrap();
            names.insert(String::from_utf8_lossy(name).into_owned());
        }
    }
    names
}

/// Whether glibc 2.17, the oldest that we support, has the symbols of a version.
fn is_old(version: &str) -> bool {
    let number = version.strip_prefix("GLIBC_").unwrap_or_default();
    let parts: Vec<u32> = number.split('.').flat_map(str::parse).collect();
    matches!(parts[..], [2, minor, ..] if minor <= 17)
}

/// Names without a version, as those of `IMPORTS`, are in every glibc since 2.2.5.
#[test]
fn it_needs_no_symbol_newer_than_glibc_2_17() {
    let needs = version_needs(fdguard_trace::library());
    let newer: Vec<&String> = needs.iter().filter(|version| !is_old(version)).collect();
    assert!(newer.is_empty(), "{newer:?}");
    assert!(is_old("GLIBC_2.2.5") && is_old("GLIBC_2.17"));
    assert!(!is_old("GLIBC_2.34") && !is_old("GLIBC_PRIVATE") && !is_old("GCC_3.0"));
    // This test was linked with a newer one: the list is read.
    let own = std::fs::read("/proc/self/exe").unwrap();
    assert!(version_needs(&own).contains("GLIBC_2.2.5"));
}

#[test]
fn it_has_no_path_to_a_panic() {
    with_library(|file| {
        let names = file
            .symbols()
            .filter_map(|symbol| symbol.name().ok().map(str::to_owned));
        let panics: Vec<String> = names.filter(|name| name.contains("panic")).collect();
        assert!(panics.is_empty(), "{panics:?}");
    });
}

#[test]
fn exports() {
    with_library(|file| {
        let defined = file
            .dynamic_symbols()
            .filter(object::ObjectSymbol::is_definition);
        let offered: BTreeSet<&str> = defined.map(|symbol| symbol.name().unwrap()).collect();
        let expected: BTreeSet<&str> = EXPORTS
            .iter()
            .copied()
            .chain(["rust_eh_personality"])
            .chain(["fdguard_attach", "fdguard_detach", "fdguard_is_recording"])
            .chain([
                "fdguard_end_walk",
                "fdguard_wake_inspector",
                "fdguard_walk",
                "fdguard_walk_java",
            ])
            .collect();
        assert_eq!(offered, expected);
    });
}

#[test]
fn r19_another_interposer_is_asked_once_a_call() {
    let flags = ["-O2", "-shared", "-fPIC"];
    let other = testkit::c_variant("interposer", "so", &flags).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("library.so");
    std::fs::write(&own, fdguard_trace::library()).unwrap();
    for order in [[&own, &other], [&other, &own]] {
        let list = order.map(|path| path.display().to_string()).join(":");
        let mut command = Command::new(victim());
        command
            .arg("leak")
            .env("LD_PRELOAD", list)
            .env("FDGUARD_TRACE_DIR", dir.path());
        let output = command.output().unwrap();
        assert!(output.status.success());
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "last 1\nasked 24\n"
        );
    }
}

#[test]
fn a_static_program_is_said_to_be_out_of_sight() {
    let Some(program) = testkit::c_variant(
        "traced",
        "static",
        &["-O2", "-static", "-pthread", "-Wno-error"],
    ) else {
        testkit::skip("no static C library");
        return;
    };
    assert_eq!(
        TracedProgram::find(program.as_os_str()).unwrap().blind,
        Some(BlindReason::Static)
    );
    assert_eq!(
        TracedProgram::find(Path::new("/bin/sh").as_os_str())
            .unwrap()
            .blind,
        None
    );
}
