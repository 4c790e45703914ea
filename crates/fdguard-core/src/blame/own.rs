//! What is the application's own code, by the names of files, functions and modules.
//!
//! The blamed line, the paths to it and the failures of a check all follow this one rule.

use super::{go, interpreter};
use crate::origin::{Frame, Language};

/// Directories of installed code, for all languages.
const INSTALLED: &[&str] = &[
    "/site-packages/",
    "/dist-packages/",
    "/node_modules/",
    "/.cargo/registry/",
    "/.cargo/git/",
    "/rustc/",
    "/rustlib/src/",
    "/go/pkg/mod/",
    "/jdk/",
    "/jdk-",
    "/jvm/",
    "/.yarn/cache/",
    "/.pnp.cjs",
    "/.pex/installed_wheels/",
    "/.bootstrap/pex/",
];

/// Where the system keeps its libraries and their sources.
const SYSTEM: &[&str] = &[
    "/usr/lib/",
    "/usr/lib64/",
    "/usr/libexec/",
    "/usr/include/",
    "/usr/src/",
    "/usr/share/",
    "/lib/",
    "/lib64/",
    "/build/glibc",
    "./sysdeps/",
    "../sysdeps/",
    "./csu/",
    "../csu/",
    "./nptl/",
    "./io/",
    "./socket/",
    "./libio/",
    "[vdso]",
];

/// Directories of programs that come with the system. Users cannot fix what these hold open, unless
/// the source is available.
const PROGRAM_DIRS: &[&str] = &[
    "/usr/bin/",
    "/usr/sbin/",
    "/bin/",
    "/sbin/",
    "/usr/local/bin/",
    "/usr/local/sbin/",
    "/snap/",
];

/// Whether it is the application's own code, judged by names.
pub(super) fn is_own(frame: &Frame) -> bool {
    let file = frame.file.as_ref().map(|file| file.to_lossy());
    let module = frame.module.as_ref().map(|module| module.to_lossy());
    let (file, module) = (file.as_deref(), module.as_deref());
    if file.is_none() && frame.function.is_none() {
        return false;
    }
    let function = frame.function.as_deref().unwrap_or_default();
    if frame.language == Language::Go {
        return go::is_own(function, file);
    }
    let is_foreign = |place: &str| {
        INSTALLED.iter().any(|directory| place.contains(directory))
            || SYSTEM.iter().any(|directory| place.starts_with(directory))
    };
    if file.is_some_and(is_foreign) {
        return false;
    }
    match frame.language {
        Language::Python => file.is_some_and(|file| !is_python_runtime(file)),
        Language::Node => file.is_some_and(|file| !is_node_runtime(file)),
        Language::Java => !is_java_runtime(function, module),
        Language::Rust => !is_rust_runtime(function) && !is_native_library(module),
        Language::Go => true,
        Language::C | Language::Cpp | Language::Native => {
            // An address in no known file, as with a C library before 2.35: anybody's code.
            let is_address = file.is_none() && module.is_none() && function.starts_with("0x");
            let is_library = is_address || is_native_library(module);
            !is_library && !is_start(function) && !is_cpp_runtime(function)
        }
    }
}

/// Whether the user can fix it: the application's own code, or a program without symbols that did
/// not come with the system.
pub(super) fn is_users(frame: &Frame) -> bool {
    let is_native = matches!(
        frame.language,
        Language::C | Language::Cpp | Language::Rust | Language::Native
    );
    if !is_native || frame.file.is_some() {
        return is_own(frame);
    }
    let Some(module) = &frame.module else {
        // Code generated at run time.
        return false;
    };
    let module = module.to_lossy();
    if PROGRAM_DIRS.iter().any(|dir| module.starts_with(dir)) {
        return false;
    }
    // A program without symbols still counts as a program.
    is_own(&Frame {
        function: Some(frame.function.clone().unwrap_or_else(|| "?".to_owned())),
        ..frame.clone()
    })
}

/// Whether a frame is of an installed package, and not of a language's own library.
pub(super) fn is_package(frame: &Frame) -> bool {
    let file = frame.file.as_ref().map(|file| file.to_lossy());
    if frame.language == Language::Go {
        let function = frame.function.as_deref().unwrap_or_default();
        return go::is_library(function, file.as_deref());
    }
    if frame.language == Language::Java {
        return frame.module.is_some();
    }
    file.is_some_and(|file| INSTALLED.iter().any(|directory| file.contains(directory)))
}

/// The standard library: `…/lib/python3.11/…`, frozen modules, and code generated at run time.
fn is_python_runtime(file: &str) -> bool {
    let is_library = |file: &str| {
        file.match_indices("/lib/python").any(|(at, name)| {
            let rest = &file[at + name.len()..];
            let directory = rest.split('/').next().unwrap_or_default();
            rest.contains('/') && directory.starts_with(|c: char| c.is_ascii_digit())
        })
    };
    is_library(file) || (file.starts_with('<') && file != "<stdin>" && file != "<string>")
}

fn is_node_runtime(file: &str) -> bool {
    file.starts_with("node:") || file.starts_with("internal/") || file == "native"
}

/// Java's classes carry their package in the function: `java.nio.file.Files.lines`. Only those of
/// libraries have a module, which is the archive that they come from.
fn is_java_runtime(function: &str, module: Option<&str>) -> bool {
    const PACKAGES: &[&str] = &[
        "java.", "javax.", "jdk.", "sun.", "com.sun.", "kotlin.", "scala.",
    ];
    PACKAGES.iter().any(|package| function.starts_with(package)) || module.is_some()
}

/// `<std::fs::File as …>` and `core::…` alike.
fn is_rust_runtime(function: &str) -> bool {
    const CRATES: &[&str] = &[
        "std::",
        "core::",
        "alloc::",
        "__rust",
        "rust_begin",
        "rust_eh",
        "rust_start",
    ];
    let bare = function.trim_start_matches(['<', '&', '_']);
    let under = |name: &&str| function.starts_with(*name) || bare.starts_with(*name);
    CRATES.iter().any(under) || is_start(function)
}

/// A shared library of the system, of an installed package or of a runtime.
fn is_native_library(module: Option<&str>) -> bool {
    const RUNTIMES: &[&str] = &[
        "libc.so",
        "libc-",
        "libpython",
        "libjvm",
        "libnode",
        "libstdc++",
        "libpthread",
        "ld-linux",
        "ld-musl",
        "linux-vdso",
        "libgcc_s",
        // The kernel may trace a program in which the library is too.
        "libfdguard_preload",
    ];
    const PROGRAMS: &[&str] = &["python", "python2", "python3", "node", "java"];
    let Some(module) = module else { return false };
    let name = module.rsplit('/').next().unwrap_or(module);
    let program = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    RUNTIMES.iter().any(|runtime| name.starts_with(runtime))
        || interpreter::language_of_program(name).is_some()
        || PROGRAMS.contains(&name)
        || (PROGRAMS.contains(&program) && name != program)
        || SYSTEM.iter().any(|directory| module.starts_with(directory))
        || INSTALLED.iter().any(|directory| module.contains(directory))
        || module.contains("/lib-dynload/")
}

/// What runs before `main` and around a thread.
fn is_start(function: &str) -> bool {
    matches!(
        function,
        "_start"
            | "__libc_start_main"
            | "__libc_start_call_main"
            | "start_thread"
            | "clone"
            | "clone3"
            | "__clone"
            | "__clone3"
    ) || function.starts_with("__libc_start")
}

fn is_cpp_runtime(function: &str) -> bool {
    let bare = function.strip_prefix("void ").unwrap_or(function);
    bare.starts_with("std::") || bare.starts_with("__gnu_cxx::") || bare.starts_with("__cxxabiv1::")
}
