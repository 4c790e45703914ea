//! Victims in Go, built with every version of Go that is here.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::FlockOperation;

use crate::locate::{is_older, profile_dir};
use crate::requirement::{runtimes_dir, skip};

/// A version of Go.
#[derive(Clone, Debug)]
pub struct GoToolchain {
    /// 24 for Go 1.24.
    pub version: u32,
    go: PathBuf,
}

/// The versions that `testkit/runtimes` brings unless it is told otherwise: the oldest and the
/// newest.
pub const USUAL_GO: [u32; 2] = [21, 27];

/// The toolchains that `testkit/runtimes` installed, and the one on the search path, oldest first.
/// Prints which of the usual ones are missing.
#[must_use]
pub fn go_toolchains() -> Vec<GoToolchain> {
    for version in USUAL_GO {
        if installed(version).is_none() {
            skip(&missing(version));
        }
    }
    let on_path = PathBuf::from("go");
    let version = version(&on_path).filter(|version| installed(*version).is_none());
    let other = version.map(|version| GoToolchain {
        version,
        go: on_path,
    });
    other
        .into_iter()
        .chain((18..=40).filter_map(installed))
        .collect()
}

/// The toolchain of this version; `None`, and a message, without it.
#[must_use]
pub fn go_toolchain(version: u32) -> Option<GoToolchain> {
    let found = installed(version);
    if found.is_none() {
        skip(&missing(version));
    }
    found
}

fn missing(version: u32) -> String {
    format!("no Go 1.{version}: testkit/runtimes brings it")
}

fn installed(version: u32) -> Option<GoToolchain> {
    let path = runtimes_dir().join(format!("go-{version}/bin/go"));
    let go = path.canonicalize().ok()?;
    Some(GoToolchain { version, go })
}

/// A program that an old version of Go compiled, stripped; `None`, and a message, without it.
#[must_use]
pub fn go_program(version: u32) -> Option<PathBuf> {
    let path = runtimes_dir().join(format!("go-program-{version}/esbuild"));
    let found = path.canonicalize().ok();
    if found.is_none() {
        skip(&format!(
            "no program of Go 1.{version}: testkit/runtimes brings it"
        ));
    }
    found
}

impl GoToolchain {
    /// The `go` command, without modules and network.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.go);
        command.envs(self.environment());
        command
    }

    /// The victim from a source in `testkit/go`, built with these flags under a name that ends in
    /// `variant`. `None` if it does not build; the compiler prints the reason.
    #[must_use]
    pub fn victim(&self, name: &str, variant: &str, flags: &[&str]) -> Option<PathBuf> {
        self.build(name, variant, flags, false)
    }

    /// The same with the C library, as a program that uses cgo.
    #[must_use]
    pub fn cgo_victim(&self, name: &str, variant: &str, flags: &[&str]) -> Option<PathBuf> {
        self.build(name, variant, flags, true)
    }

    fn build(&self, name: &str, variant: &str, flags: &[&str], has_c: bool) -> Option<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("go/{name}.go"));
        let file = format!("{name}-go{}-{variant}", self.version);
        let path = profile_dir().join(&file);
        if !is_older(&path, &source) {
            return Some(path);
        }
        let _one_at_a_time = self.lock();
        if !is_older(&path, &source) {
            return Some(path);
        }
        let scratch = tempfile::tempdir_in(profile_dir()).expect("scratch folder");
        let output = scratch.path().join(&file);
        if !self.run_compiler(&source, &output, flags, has_c) {
            return None;
        }
        std::fs::rename(&output, &path).expect("putting the victim in place");
        Some(path)
    }

    /// Builds a source file with the cache of all victims, and with the C library on request;
    /// whether that succeeded.
    #[must_use]
    pub fn compile(&self, source: &Path, output: &Path, flags: &[&str], has_c: bool) -> bool {
        let _one_at_a_time = self.lock();
        self.run_compiler(source, output, flags, has_c)
    }

    /// Builds of one version take turns. Each needs Go's standard library: the first compiles it
    /// for the cache, and builds beside it would compile it as well.
    fn lock(&self) -> File {
        let path = profile_dir().join(format!(".go{}.lock", self.version));
        let lock = File::create(path).expect("lock file");
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).expect("lock");
        lock
    }

    fn run_compiler(&self, source: &Path, output: &Path, flags: &[&str], has_c: bool) -> bool {
        let status = self
            .command()
            .arg("build")
            .args(flags)
            .arg("-o")
            .args([output, source])
            .env("CGO_ENABLED", if has_c { "1" } else { "0" })
            .status();
        status.expect("go").success()
    }

    /// No modules, no network, and a cache of its own.
    fn environment(&self) -> [(&'static str, OsString); 4] {
        let cache = profile_dir().join("go-cache");
        [
            ("GOCACHE", cache.into()),
            ("GOTOOLCHAIN", "local".into()),
            ("GO111MODULE", "off".into()),
            ("GOFLAGS", OsString::new()),
        ]
    }
}

/// `go version go1.19.8 linux/amd64` is 19.
fn version(go: &Path) -> Option<u32> {
    let said = Command::new(go).arg("version").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let (_, rest) = said.split_once("go1.")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}
