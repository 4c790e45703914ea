//! The borders between the crates: which crate may use which, and what its source may contain.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::names::{self, NAMES};
use crate::repeats::{self, RepeatReport};
use crate::{architecture, sleeps, source, width};

/// In place of a list of crates: every one of them.
const ALL: &str = "all";

/// All checks. A change here is a design change: give its reason in ARCHITECTURE.md first.
const RULES: Rules = Rules {
    arrows: &[
        ("fdguard-wire", &[]),
        ("fdguard-proc", &[]),
        ("fdguard-core", &["fdguard-wire", "fdguard-proc"]),
        ("fdguard-kernel", &[]),
        (
            "fdguard-probe",
            &["fdguard-core", "fdguard-kernel", "fdguard-proc"],
        ),
        ("fdguard-preload", &["fdguard-wire"]),
        ("fdguard-why", &["fdguard-wire"]),
        ("harness-python", &["fdguard-wire"]),
        ("fdguard-process", &["fdguard-core", "fdguard-proc"]),
        ("fdguard-attach", &["fdguard-proc"]),
        (
            "fdguard-trace",
            &[
                "fdguard-attach",
                "fdguard-core",
                "fdguard-kernel",
                "fdguard-why",
                "fdguard-wire",
                "fdguard-proc",
            ],
        ),
        (
            "fdguard-diagnose",
            &[
                "fdguard-core",
                "fdguard-probe",
                "fdguard-proc",
                "fdguard-trace",
                "fdguard-process",
            ],
        ),
        (
            "fdguard-supervise",
            &[
                "fdguard-core",
                "fdguard-proc",
                "fdguard-probe",
                "fdguard-process",
            ],
        ),
        (
            "fdguard-files",
            &["fdguard-core", "fdguard-proc", "fdguard-probe"],
        ),
        ("fdguard-http", &["fdguard-core"]),
        (
            "fdguard-host",
            &[
                "fdguard-core",
                "fdguard-proc",
                "fdguard-probe",
                "fdguard-process",
                "fdguard-files",
                "fdguard-http",
            ],
        ),
        (
            "fdguard-serve",
            &[
                "fdguard-core",
                "fdguard-diagnose",
                "fdguard-http",
                "fdguard-probe",
                "fdguard-proc",
            ],
        ),
        (
            "fdguard-canary",
            &["fdguard-core", "fdguard-probe", "fdguard-trace"],
        ),
        (
            "fdguard",
            &[
                "fdguard-core",
                "fdguard-diagnose",
                "fdguard-files",
                "fdguard-host",
                "fdguard-probe",
                "fdguard-proc",
                "fdguard-process",
                "fdguard-serve",
                "fdguard-supervise",
                "fdguard-trace",
            ],
        ),
        ("fuzz", &[ALL]),
        ("testkit", &[]),
        ("xtask", &["fdguard-core", "fdguard"]),
    ],
    for_tests: &["testkit", "fdguard-canary"],
    only_in: &[
        ("clap", &["fdguard", "xtask"]),
        ("clap_complete", &["fdguard"]),
        ("clap_mangen", &["xtask"]),
        ("anyhow", &["fdguard", "xtask"]),
        ("anstream", &["fdguard"]),
        ("anstyle", &["fdguard"]),
        ("ratatui", &["fdguard"]),
        ("crossterm", &["fdguard"]),
        (
            "libc",
            &[
                "testkit",
                "fdguard-attach",
                "fdguard-files",
                "fdguard-kernel",
                "fdguard-probe",
                "fdguard-process",
            ],
        ),
        ("signal-hook", &["fdguard-process"]),
        ("signal-hook-registry", &["fdguard-process"]),
        ("tokio", &["fdguard-host", "fdguard-http", "fdguard-serve"]),
        ("axum", &["fdguard-host", "fdguard-http", "fdguard-serve"]),
        ("rmcp", &["fdguard-host"]),
    ],
    pure: &["crates/fdguard-core/src"],
    impure: &[
        "std::fs",
        "std::net",
        "std::process",
        "std::env",
        "std::thread",
        "Instant::now",
        "SystemTime::now",
        "Timestamp::now",
        "Zoned::now",
    ],
    forbid_unsafe: &[
        "crates/fdguard-core/src/lib.rs",
        "crates/fdguard-proc/src/lib.rs",
        "crates/fdguard-why/src/lib.rs",
        "crates/fdguard-wire/src/lib.rs",
    ],
    may_be_unsafe: &[
        "crates/fdguard-attach/src/x86_64/ptrace.rs",
        "crates/fdguard-attach/src/x86_64/remote.rs",
        "crates/fdguard-files/src/sys.rs",
        "crates/fdguard-host/src/watched_tree.rs",
        "crates/fdguard-host/src/http/signal.rs",
        "crates/fdguard-host/tests/suite/call/wrong_closer.rs",
        "crates/fdguard-kernel/src/call.rs",
        "crates/fdguard-kernel/src/ring.rs",
        "crates/fdguard-kernel/src/types.rs",
        "crates/fdguard-preload/src/why/copy.rs",
        "crates/fdguard-preload/src/why/node.rs",
        "crates/fdguard-preload/src/why/mod.rs",
        "crates/fdguard-preload/src/why/walk.rs",
        "crates/fdguard-preload/src/no_std_support.rs",
        "crates/fdguard-preload/src/attach/adds.rs",
        "crates/fdguard-preload/src/attach/hooks.rs",
        "crates/fdguard-preload/src/attach/inspector.rs",
        "crates/fdguard-preload/src/attach/loaded.rs",
        "crates/fdguard-preload/src/attach/mod.rs",
        "crates/fdguard-preload/src/attach/rebind.rs",
        "crates/fdguard-preload/src/attach/scope.rs",
        "crates/fdguard-preload/src/attach/tick.rs",
        "crates/fdguard-preload/src/attach/verify.rs",
        "crates/fdguard-preload/src/creator/patch.rs",
        "crates/fdguard-preload/src/errno.rs",
        "crates/fdguard-preload/src/hand_over.rs",
        "crates/fdguard-preload/src/hook/answer.rs",
        "crates/fdguard-preload/src/hook/apart.rs",
        "crates/fdguard-preload/src/hook/ask.rs",
        "crates/fdguard-preload/src/hook/close.rs",
        "crates/fdguard-preload/src/hook/control.rs",
        "crates/fdguard-preload/src/hook/descriptor.rs",
        "crates/fdguard-preload/src/hook/shape.rs",
        "crates/fdguard-preload/src/hook/end.rs",
        "crates/fdguard-preload/src/hook/exec.rs",
        "crates/fdguard-preload/src/hook/file.rs",
        "crates/fdguard-preload/src/hook/fork.rs",
        "crates/fdguard-preload/src/hook/limit.rs",
        "crates/fdguard-preload/src/hook/module.rs",
        "crates/fdguard-preload/src/hook/reap.rs",
        "crates/fdguard-preload/src/hook/receive.rs",
        "crates/fdguard-preload/src/hook/restrain.rs",
        "crates/fdguard-preload/src/hook/signal.rs",
        "crates/fdguard-preload/src/hook/spawn.rs",
        "crates/fdguard-preload/src/hook/stream.rs",
        "crates/fdguard-preload/src/hook/syscall.rs",
        "crates/fdguard-preload/src/hook/terminal.rs",
        "crates/fdguard-preload/src/hook/thread.rs",
        "crates/fdguard-preload/src/hook/transfer.rs",
        "crates/fdguard-preload/src/hook/unmap.rs",
        "crates/fdguard-preload/src/hook/wait.rs",
        "crates/fdguard-preload/src/java/call.rs",
        "crates/fdguard-preload/src/java/heap/jvm.rs",
        "crates/fdguard-preload/src/java/heap/mod.rs",
        "crates/fdguard-preload/src/java/heap/record.rs",
        "crates/fdguard-preload/src/java/heap/room.rs",
        "crates/fdguard-preload/src/java/layout.rs",
        "crates/fdguard-preload/src/java/machine.rs",
        "crates/fdguard-preload/src/language.rs",
        "crates/fdguard-preload/src/list.rs",
        "crates/fdguard-preload/src/loader.rs",
        "crates/fdguard-preload/src/memory.rs",
        "crates/fdguard-preload/src/modules.rs",
        "crates/fdguard-preload/src/node.rs",
        "crates/fdguard-preload/src/protect/reserved_range.rs",
        "crates/fdguard-preload/src/protect/kernel.rs",
        "crates/fdguard-preload/src/real.rs",
        "crates/fdguard-preload/src/inflight.rs",
        "crates/fdguard-preload/src/start.rs",
        "crates/fdguard-preload/src/symbols.rs",
        "crates/fdguard-preload/src/sys.rs",
        "crates/fdguard-preload/src/thread.rs",
        "crates/fdguard-preload/src/unwind/bytes.rs",
        "crates/fdguard-preload/src/unwind/registers.rs",
        "crates/fdguard-preload/harness-python/no_panic.rs",
        "crates/fdguard-preload/harness-python/src/lib.rs",
        "crates/fdguard-preload/src/python/memory.rs",
        "crates/fdguard-preload/src/python/runtime.rs",
        "crates/fdguard-preload/src/python/tests.rs",
        "crates/fdguard-probe/src/linux/kcmp.rs",
        "crates/fdguard-probe/src/linux/rlimit.rs",
        "crates/fdguard-probe/src/linux/socket_query.rs",
        "crates/fdguard-process/src/signals.rs",
        "crates/fdguard-process/src/listen/activation.rs",
        "crates/fdguard-process/src/notify/same.rs",
        "crates/fdguard-process/src/keeper/mod.rs",
        "crates/fdguard-process/src/name_lookup.rs",
        "crates/fdguard-process/src/pty.rs",
        "crates/fdguard-process/src/spawn/child.rs",
        "crates/fdguard-process/src/sys.rs",
        "crates/fdguard-supervise/src/trim.rs",
        "testkit/src/sys.rs",
        "testkit/src/launch.rs",
    ],
};

/// The table's shape.
struct Rules {
    /// Each crate of the workspace with the workspace crates that it may use.
    arrows: &'static [(&'static str, &'static [&'static str])],
    /// Workspace crates that any crate may use for its tests.
    for_tests: &'static [&'static str],
    /// Foreign crates that only these workspace crates may use, also in tests.
    only_in: &'static [(&'static str, &'static [&'static str])],
    /// Directories whose code does no I/O and reads no clock, except in tests.
    pure: &'static [&'static str],
    /// Paths that such code must not name.
    impure: &'static [&'static str],
    /// Files that must forbid unsafe code for their crate.
    forbid_unsafe: &'static [&'static str],
    /// The only files with unsafe blocks; CONTRIBUTING.md lists them.
    may_be_unsafe: &'static [&'static str],
}

impl Rules {
    /// The part of the table that ARCHITECTURE.md shows.
    fn design(&self) -> architecture::Design {
        architecture::Design {
            arrows: self.arrows,
            only_in: self.only_in,
            may_be_unsafe: self.may_be_unsafe,
        }
    }
}

/// A violation, and where it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    file: PathBuf,
    line: usize,
    text: String,
}

impl Complaint {
    pub(crate) fn new(file: &Path, line: usize, text: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line,
            text: text.into(),
        }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.text)
    }
}

/// Checks the workspace under `root`.
pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for package in packages(root)? {
        let manifest = std::fs::read_to_string(&package.manifest_path)?;
        let file = relative(root, &package.manifest_path);
        complaints.extend(arrows(&package, &manifest, &file));
        complaints.extend(unused_arrows(&package, &file));
    }
    let texts = texts(root)?;
    let sources = blanked(&texts);
    let tests = test_files(&sources);
    for (file, code) in &sources {
        complaints.extend(unsafe_blocks(file, code));
        complaints.extend(names::participles(&NAMES, file, code));
        let is_pure = RULES
            .pure
            .iter()
            .any(|directory| file.starts_with(directory));
        if is_pure && !tests.contains(file) {
            complaints.extend(impurities(file, code));
        }
        let must_forbid = RULES
            .forbid_unsafe
            .iter()
            .any(|path| file == Path::new(path));
        if must_forbid && !code.contains("#![forbid(unsafe_code)]") {
            complaints.push(Complaint::new(file, 1, "lacks #![forbid(unsafe_code)]"));
        }
    }
    complaints.extend(architecture::check(root, &sources, &RULES.design())?);
    complaints.extend(names::duplicates(&NAMES, &sources, &tests));
    complaints.extend(sleeps::check(&sources, &tests));
    complaints.extend(repeats::find(&texts, &tests).complaints);
    complaints.extend(width::check(root)?);
    Ok(complaints.iter().map(Complaint::to_string).collect())
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

fn packages(root: &Path) -> anyhow::Result<Vec<Package>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata: {said}");
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    Ok(metadata.packages)
}

/// The arrows of one crate that are not in the table.
fn arrows(package: &Package, manifest: &str, file: &Path) -> Vec<Complaint> {
    let name = package.name.as_str();
    let Some((_, allowed)) = RULES.arrows.iter().find(|(known, _)| *known == name) else {
        let text = format!("crate {name} is not in the table of xtask/src/borders.rs");
        return vec![Complaint::new(file, 1, text)];
    };
    let ours = |name: &str| RULES.arrows.iter().any(|(known, _)| *known == name);
    let mut complaints = Vec::new();
    for dependency in &package.dependencies {
        let to = dependency.name.as_str();
        let is_for_tests = dependency.kind.as_deref() == Some("dev");
        let may = allowed.contains(&to)
            || allowed.contains(&ALL)
            || (is_for_tests && RULES.for_tests.contains(&to));
        let text = if ours(to) && !may {
            format!("{name} may not use {to}: {}", arrow_reason(allowed))
        } else if let Some((_, users)) = only_in(to)
            && !users.contains(&name)
        {
            format!("{name} may not use {to}: {}", user_reason(users))
        } else {
            continue;
        };
        complaints.push(Complaint::new(file, line_of(manifest, to), text));
    }
    complaints
}

/// The arrows of the table that a crate does not use: the table says what is, not what may come.
fn unused_arrows(package: &Package, file: &Path) -> Vec<Complaint> {
    let name = package.name.as_str();
    let allowed = RULES.arrows.iter().find(|(known, _)| *known == name);
    let is_used = |to: &str| to == ALL || package.dependencies.iter().any(|one| one.name == to);
    let unused = allowed
        .into_iter()
        .flat_map(|(_, allowed)| *allowed)
        .filter(|to| !is_used(to));
    unused
        .map(|to| Complaint::new(file, 1, format!("{name} does not use {to}: drop the arrow")))
        .collect()
}

fn only_in(dependency: &str) -> Option<&'static (&'static str, &'static [&'static str])> {
    RULES.only_in.iter().find(|(known, _)| *known == dependency)
}

fn arrow_reason(allowed: &[&str]) -> String {
    match allowed {
        [] => "it uses no other crate of ours".to_owned(),
        some => format!("of ours it uses {} only", some.join(", ")),
    }
}

fn user_reason(users: &[&str]) -> String {
    match users {
        [] => "no crate does so far".to_owned(),
        some => format!("that is for {} only", some.join(", ")),
    }
}

/// The line of a manifest that names a dependency.
fn line_of(manifest: &str, dependency: &str) -> usize {
    let names_it = |line: &str| {
        line.strip_prefix(dependency)
            .is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
    };
    manifest.lines().position(names_it).map_or(1, |at| at + 1)
}

/// Code that stands in two places.
pub(crate) fn repeats(root: &Path) -> anyhow::Result<RepeatReport> {
    let texts = texts(root)?;
    let tests = test_files(&blanked(&texts));
    Ok(repeats::find(&texts, &tests))
}

/// Comments and strings blanked.
fn blanked(texts: &[(PathBuf, String)]) -> Vec<(PathBuf, String)> {
    let code = |(file, text): &(PathBuf, String)| (file.clone(), source::code_only(text));
    texts.iter().map(code).collect()
}

/// Every Rust source of the workspace by its path from the root.
fn texts(root: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut dirs = ["crates", "testkit", "xtask"]
        .map(|dir| root.join(dir))
        .to_vec();
    let mut found = Vec::new();
    while let Some(directory) = dirs.pop() {
        let listing =
            std::fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
        for entry in listing {
            let entry = entry?;
            let path = entry.path();
            // A link leads to sources that are checked where they are.
            if entry.file_type()?.is_symlink() {
                continue;
            }
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((relative(root, &path), std::fs::read_to_string(&path)?));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn relative(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}

/// Files that are a module only of tests.
fn test_files(sources: &[(PathBuf, String)]) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for (file, code) in sources {
        let stem = file.file_stem().unwrap_or_default();
        let directory = if stem == "lib" || stem == "main" || stem == "mod" {
            file.with_file_name("")
        } else {
            file.with_extension("")
        };
        for module in source::test_only(code).modules {
            files.insert(directory.join(format!("{module}.rs")));
            files.insert(directory.join(module).join("mod.rs"));
        }
    }
    files
}

fn unsafe_blocks(file: &Path, code: &str) -> Vec<Complaint> {
    if RULES
        .may_be_unsafe
        .iter()
        .any(|path| file == Path::new(path))
    {
        return Vec::new();
    }
    let text = "unsafe code outside of the files that CONTRIBUTING.md names";
    source::whole_words(code, "unsafe")
        .map(|at| Complaint::new(file, source::line(code, at), text))
        .collect()
}

fn impurities(file: &Path, code: &str) -> Vec<Complaint> {
    let tests = source::test_only(code).stretches;
    let mut complaints = Vec::new();
    for path in RULES.impure {
        for at in source::mentions(code, path) {
            if !tests.iter().any(|stretch| stretch.contains(&at)) {
                let text = format!("{path} in a crate that does no I/O and asks no clock");
                complaints.push(Complaint::new(file, source::line(code, at), text));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Complaint, Dependency, Package, RULES};

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependencies = dependencies.iter().map(|(name, kind)| Dependency {
            name: (*name).to_owned(),
            kind: kind.map(str::to_owned),
        });
        Package {
            name: name.to_owned(),
            manifest_path: PathBuf::from("Cargo.toml"),
            dependencies: dependencies.collect(),
        }
    }

    fn arrows(name: &str, dependencies: &[(&str, Option<&str>)]) -> Vec<String> {
        let package = package(name, dependencies);
        super::arrows(&package, "", Path::new("Cargo.toml"))
            .iter()
            .map(Complaint::to_string)
            .collect()
    }

    #[test]
    fn an_arrow_of_the_design_is_fine_and_one_against_it_is_not() {
        assert!(arrows("fdguard-probe", &[("fdguard-core", None)]).is_empty());
        let found = arrows("fdguard-core", &[("fdguard-probe", None)]);
        assert_eq!(
            found,
            [
                "Cargo.toml:1: fdguard-core may not use fdguard-probe: of ours it uses fdguard-wire, fdguard-proc only"
            ]
        );
    }

    #[test]
    fn an_arrow_that_is_not_used_is_found() {
        let package = package("fdguard-core", &[("fdguard-wire", None)]);
        let found = super::unused_arrows(&package, Path::new("Cargo.toml"));
        let found: Vec<String> = found.iter().map(Complaint::to_string).collect();
        assert_eq!(
            found,
            ["Cargo.toml:1: fdguard-core does not use fdguard-proc: drop the arrow"]
        );
    }

    #[test]
    fn the_test_kit_is_for_tests_only() {
        assert!(arrows("fdguard-probe", &[("testkit", Some("dev"))]).is_empty());
        assert_eq!(arrows("fdguard-probe", &[("testkit", None)]).len(), 1);
        assert_eq!(arrows("fdguard-core", &[("fdguard", Some("dev"))]).len(), 1);
        assert_eq!(arrows("fdguard", &[("xtask", Some("dev"))]).len(), 1);
    }

    #[test]
    fn only_the_command_knows_arguments_and_terminals() {
        assert!(arrows("fdguard", &[("clap", None), ("ratatui", None)]).is_empty());
        assert!(arrows("xtask", &[("clap", None), ("anyhow", None)]).is_empty());
        for dependency in ["clap", "anyhow", "ratatui", "crossterm", "anstream"] {
            assert_eq!(arrows("fdguard-probe", &[(dependency, None)]).len(), 1);
        }
        assert_eq!(arrows("fdguard", &[("tokio", None)]).len(), 1);
    }

    #[test]
    fn a_crate_that_nobody_drew_is_refused() {
        assert_eq!(arrows("fdguard-nobody", &[]).len(), 1);
    }

    #[test]
    fn the_line_of_the_manifest_is_named() {
        let manifest = "[dependencies]\nclap_complete.workspace = true\nclap.workspace = true\n";
        assert_eq!(super::line_of(manifest, "clap"), 3);
        assert_eq!(super::line_of(manifest, "absent"), 1);
    }

    #[test]
    fn unsafe_code_is_refused_except_where_it_is_named() {
        let code = "fn f() {\n    unsafe { g() }\n}";
        let found = super::unsafe_blocks(Path::new("crates/fdguard/src/exit.rs"), code);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
        assert!(super::unsafe_blocks(Path::new("testkit/src/sys.rs"), code).is_empty());
        let attribute = "#![forbid(unsafe_code)]";
        assert!(super::unsafe_blocks(Path::new("a.rs"), attribute).is_empty());
    }

    #[test]
    fn a_clock_in_the_model_is_found_but_not_in_its_tests() {
        let code = "fn f() { Timestamp::now(); }\n#[cfg(test)]\nmod tests { use std::fs; }";
        let found = super::impurities(Path::new("a.rs"), code);
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().starts_with("a.rs:1: Timestamp::now"));
    }

    #[test]
    fn a_module_of_tests_in_its_own_file_is_known() {
        let sources = [
            ("src/lib.rs", "#[cfg(test)]\nmod testing;"),
            ("src/document.rs", "#[cfg(test)] mod tests;"),
        ];
        let sources = sources.map(|(file, code)| (PathBuf::from(file), code.to_owned()));
        let files = super::test_files(&sources);
        assert!(files.contains(Path::new("src/testing.rs")));
        assert!(files.contains(Path::new("src/document/tests.rs")));
    }

    #[test]
    fn contributing_lists_every_file_that_may_be_unsafe() {
        let root = crate::root().unwrap();
        let text = std::fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
        for file in RULES.may_be_unsafe {
            assert!(text.contains(file), "CONTRIBUTING.md does not list {file}");
            assert!(root.join(file).is_file(), "{file} is gone");
        }
    }

    #[test]
    fn the_workspace_keeps_its_borders() {
        let complaints = super::check(&crate::root().unwrap()).unwrap();
        assert!(complaints.is_empty(), "{complaints:#?}");
    }
}
