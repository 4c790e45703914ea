//! Builds the injected library (`fdguard-preload`) as a shared object and embeds it, so that
//! fdguard is a single binary.
//!
//! It is the same source as the workspace's crate, built once more without the standard library and
//! with its names exported. The build has its own target directory under `OUT_DIR`, so that it
//! neither waits for the outer build's lock nor mixes with it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Turns an ordinary crate into the injected library: no unwinding of its own, tables for others to
/// unwind through it, exported names.
const FLAGS: [&str; 8] = [
    "-Cpanic=abort",
    "-Cforce-unwind-tables=yes",
    "-Crelocation-model=pic",
    // For C libraries that keep dlsym in a separate library (glibc before 2.34).
    "-Clink-arg=-ldl",
    // A thread may be inside a hook for any time: the library that came by dlopen stays.
    "-Clink-arg=-Wl,-z,nodelete",
    // In a running program the loader would bind the library's own calls to the C library.
    "-Clink-arg=-Wl,-Bsymbolic-functions",
    "--cfg",
    "fdguard_injected",
];
const NAME: &str = "libfdguard_preload.so";

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let crates = here.parent().unwrap_or(&here).to_owned();
    for source in ["fdguard-preload", "fdguard-wire"] {
        println!(
            "cargo::rerun-if-changed={}",
            crates.join(source).join("src").display()
        );
        println!(
            "cargo::rerun-if-changed={}",
            crates.join(source).join("Cargo.toml").display()
        );
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let target = variable("TARGET");
    let library = out.join(NAME);
    if is_supported(&target) {
        build(&crates.join("fdguard-preload"), &out, &target);
        let built = out.join("preload").join(&target).join("release").join(NAME);
        if let Err(error) = std::fs::copy(&built, &library) {
            panic!("{}: {error}", built.display());
        }
    } else if let Err(error) = std::fs::write(&library, b"") {
        // An empty library is reported at run time: launch tracing does not support this machine.
        panic!("{}: {error}", library.display());
    }
    println!("cargo::rustc-env=FDGUARD_PRELOAD={}", library.display());
}

fn is_supported(target: &str) -> bool {
    target == "x86_64-unknown-linux-gnu"
}

fn build(package: &Path, out: &Path, target: &str) {
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args([
            "rustc",
            "--quiet",
            "--release",
            "--lib",
            "--crate-type",
            "cdylib",
            "--target",
            target,
        ])
        .args(["--config", "profile.release.opt-level=3"])
        .args(["--config", "profile.release.codegen-units=1"])
        .args(["--config", "profile.release.lto=\"fat\""])
        .args(["--config", "profile.release.panic=\"abort\""])
        .args(["--config", "profile.release.strip=\"debuginfo\""])
        .arg("--manifest-path")
        .arg(package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(out.join("preload"));
    // Nothing to download: both crates are in the workspace and have no dependencies. The outer
    // build's lock file stays as it is.
    cargo.arg("--offline");
    // Settings of the outer build must not affect this one.
    for name in [
        "RUSTFLAGS",
        "CARGO_BUILD_RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET",
    ] {
        cargo.env_remove(name);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"));
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("building the injected library: {status}"),
        Err(error) => panic!("building the injected library: {error}"),
    }
}

fn variable(name: &str) -> String {
    match env::var(name) {
        Ok(value) => value,
        Err(error) => panic!("{name}: {error}"),
    }
}
