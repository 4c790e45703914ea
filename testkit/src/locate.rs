//! Finds the built victims, and builds those that are missing or stale.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use rustix::fs::FlockOperation;

/// The built victim of this name. Builds all victims first if it is missing or older than its
/// sources; at most once per process, and one process at a time.
#[must_use]
pub fn victim_path(name: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    let dir = profile_dir();
    let path = dir.join(name);
    if !is_fresh(&path) {
        BUILT.get_or_init(|| {
            let lock = File::create(dir.join(".victims.lock")).expect("lock file");
            rustix::fs::flock(&lock, FlockOperation::LockExclusive).expect("lock");
            if !is_fresh(&path) {
                build(&dir);
            }
        });
    }
    assert!(path.is_file(), "{} is not a victim", path.display());
    path
}

/// The built victim of this name from the directory `c`, compiled if it is missing or stale.
#[must_use]
pub fn c_victim(name: &str) -> PathBuf {
    c_variant(name, "c", &["-g"]).expect("a victim that compiles and links")
}

/// The same, compiled with these flags under a name that ends in `variant`. `None` if the compiler
/// fails, as for `-static` without a static C library; the compiler prints the reason.
#[must_use]
pub fn c_variant(name: &str, variant: &str, flags: &[&str]) -> Option<PathBuf> {
    let mut flags = flags.to_vec();
    flags.splice(0..0, ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]);
    compiled(
        "cc",
        &format!("c/{name}.c"),
        &format!("{name}-{variant}"),
        &flags,
    )
}

/// The built victim from a source in this crate (`c/objects.cpp`, `rust/keeps_files.rs`), compiled
/// if it is missing or stale. `None` if the compiler fails; it prints the reason.
#[must_use]
pub fn compiled(compiler: &str, source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let path = profile_dir().join(name);
    if !is_older(&path, &source) {
        return Some(path);
    }
    // Other processes may compile the same file: each uses its own name, and the rename is atomic.
    let scratch = tempfile::tempdir_in(profile_dir()).expect("scratch folder");
    let output = scratch.path().join(name);
    let status = Command::new(compiler)
        .args(flags)
        .arg("-o")
        .args([&output, &source])
        .status()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    if !status.success() {
        return None;
    }
    // Another process may have been faster, and its victim may run: that one stays.
    if is_older(&path, &source) {
        fs::rename(&output, &path).expect("putting the victim in place");
    }
    Some(path)
}

/// The directory with the binaries of the profile that the running test was built in:
/// `target/debug` for `target/debug/deps/test-123`.
pub(crate) fn profile_dir() -> PathBuf {
    let exe = env::current_exe().expect("path of the running test");
    let dir = exe.parent().expect("folder of the running test");
    if dir.ends_with("deps") || dir.ends_with("examples") {
        dir.parent().expect("folder of the profile").to_owned()
    } else {
        dir.to_owned()
    }
}

/// Whether the binary exists and none of the sources in cargo's dep-info file is newer. Cargo
/// writes that file only for what it was asked to build: after a build of the tests, all of this
/// crate's sources count.
fn is_fresh(path: &Path) -> bool {
    let Some(built) = modified(path) else {
        return false;
    };
    let Ok(info) = fs::read_to_string(path.with_extension("d")) else {
        return is_newer_than(built, &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    };
    let Some((_, sources)) = info.split_once(": ") else {
        return false;
    };
    // make's syntax: a space inside a name is escaped
    sources
        .trim_end()
        .replace("\\ ", "\0")
        .split(' ')
        .map(|source| source.replace('\0', " "))
        .all(|source| modified(Path::new(&source)).is_some_and(|changed| changed <= built))
}

/// Whether nothing in this directory was changed later.
fn is_newer_than(built: SystemTime, dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir) else {
        return false;
    };
    entries.flatten().all(|entry| {
        let path = entry.path();
        if path.is_dir() {
            is_newer_than(built, &path)
        } else {
            modified(&path).is_some_and(|changed| changed <= built)
        }
    })
}

/// Whether a victim is missing or older than its source.
pub(crate) fn is_older(victim: &Path, source: &Path) -> bool {
    modified(victim).is_none_or(|built| Some(built) < modified(source))
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|found| found.modified()).ok()
}

fn build(dir: &Path) {
    let profile = dir.file_name().and_then(|name| name.to_str());
    let profile = profile
        .expect("name of the profile")
        .replace("debug", "dev");
    let mut target_dir = dir.parent().expect("folder of the build");
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "-p", "testkit", "--bins", "--profile", &profile]);
    let triple = target_dir.file_name().expect("name of the target");
    // A copied build directory has no tag, and is not a triple either.
    let is_triple = triple.to_string_lossy().contains('-');
    if is_triple && !target_dir.join("CACHEDIR.TAG").exists() {
        // Built with --target: one directory level more.
        command.arg("--target").arg(triple);
        target_dir = target_dir.parent().expect("folder of the build");
    }
    let status = command
        .arg("--target-dir")
        .arg(target_dir)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo");
    assert!(status.success(), "building the victims: {status}");
}
