//! Builds the injected library (`fdguard-preload`) as a shared object and embeds it, compressed, so
//! that fdguard is a single binary.
//!
//! It is the same source as the workspace's crates, compiled once more without the standard library
//! and with its names exported. `preload` and `wire` are links to these sources: a published
//! package contains their files (decision 121). The compiler is called directly, because the
//! settings of the outer build (a static C library, for example) must not affect this one, and
//! because a package in a registry has no workspace around it.

use std::env;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// What the library and the record layout have in common.
const COMMON: [&str; 8] = [
    "--edition=2024",
    "--cap-lints=allow",
    "-Copt-level=3",
    "-Ccodegen-units=1",
    "-Cpanic=abort",
    // Tables for others to unwind through the library.
    "-Cforce-unwind-tables=yes",
    "-Crelocation-model=pic",
    "--cfg=fdguard_injected",
];
/// What makes a shared object of it.
const LIBRARY: [&str; 5] = [
    "--crate-type=cdylib",
    "-Clto=fat",
    "-Cstrip=debuginfo",
    // A thread may be inside a hook for any time: the library that came by dlopen stays.
    "-Clink-arg=-Wl,-z,nodelete",
    // In a running program the loader would bind the library's own calls to the C library.
    "-Clink-arg=-Wl,-Bsymbolic-functions",
];
const NAME: &str = "libfdguard_preload.so";

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    for sources in ["preload", "wire"] {
        // The link itself has no new date when a file behind it changes.
        let sources = here.join(sources);
        let sources = sources.canonicalize().unwrap_or(sources);
        println!("cargo::rerun-if-changed={}", sources.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(variable("OUT_DIR"));
    let target = variable("TARGET");
    let library = out.join(NAME);
    if is_supported(&target) {
        let compiler = Compiler { here, out, target };
        compiler.compile("fdguard_wire", "wire", &["--crate-type=rlib"]);
        let wire = compiler.out.join("libfdguard_wire.rlib");
        let wire = format!("--extern=fdguard_wire={}", wire.display());
        let flags: Vec<&str> = LIBRARY.into_iter().chain([&*wire]).collect();
        compiler.compile("fdguard_preload", "preload", &flags);
    } else if let Err(error) = std::fs::write(&library, b"") {
        // An empty library is reported at run time: launch tracing does not support this machine.
        panic!("{}: {error}", library.display());
    }
    match compress(&library) {
        Ok(packed) => println!("cargo::rustc-env=FDGUARD_PRELOAD={}", packed.display()),
        Err(error) => panic!("{}: {error}", library.display()),
    }
}

/// Writes a file compressed, and returns where.
fn compress(path: &Path) -> io::Result<PathBuf> {
    let bytes = std::fs::read(path)?;
    let packed = path.with_extension("so.zlib");
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&bytes)?;
    std::fs::write(&packed, encoder.finish()?)?;
    Ok(packed)
}

fn is_supported(target: &str) -> bool {
    target == "x86_64-unknown-linux-gnu"
}

struct Compiler {
    here: PathBuf,
    out: PathBuf,
    target: String,
}

impl Compiler {
    /// Compiles the crate whose sources are in `dir`.
    fn compile(&self, name: &str, dir: &str, flags: &[&str]) {
        let source = Path::new(dir).join("lib.rs");
        let mut rustc = Command::new(variable("RUSTC"));
        rustc
            // A relative path: the same bytes wherever the package is.
            .current_dir(&self.here)
            .arg(format!("--crate-name={name}"))
            .arg(format!("--target={}", self.target))
            .args(COMMON)
            .args(flags)
            .arg("--out-dir")
            .arg(&self.out)
            .arg(source);
        if let Some(linker) = env::var_os("RUSTC_LINKER") {
            rustc.arg("-C").arg(concat("linker=", &linker));
        }
        match rustc.status() {
            Ok(status) if status.success() => {}
            Ok(status) => panic!("building the injected library: {status}"),
            Err(error) => panic!("building the injected library: {error}"),
        }
    }
}

fn concat(name: &str, value: &std::ffi::OsStr) -> std::ffi::OsString {
    let mut text = std::ffi::OsString::from(name);
    text.push(value);
    text
}

fn variable(name: &str) -> String {
    match env::var(name) {
        Ok(value) => value,
        Err(error) => panic!("{name}: {error}"),
    }
}
