//! Compiles the kernel programs. The objects are committed, so that nobody needs clang to build
//! fdguard; `--check` proves that they are what Debian's clang makes of the sources.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// Where the sources and the objects are.
const DIR: &str = "crates/fdguard-kernel/bpf";
const CLANG: &str = "clang-14";
const OBJCOPY: &str = "llvm-objcopy-14";
/// Nothing that depends on the machine: paths in the types are relative.
const OPTIONS: [&str; 8] = [
    "-target",
    "bpf",
    "-mcpu=v3",
    "-O2",
    "-g",
    "-Wall",
    "-Werror",
    "-fdebug-compilation-dir=.",
];
/// What only a debugger or a linker needs.
const REMOVED: [&str; 4] = [
    "--strip-debug",
    "--remove-section=.rel.BTF",
    "--remove-section=.rel.BTF.ext",
    "--remove-section=.llvm_addrsig",
];

/// Compiles every program and writes its object.
pub(crate) fn write(root: &Path) -> anyhow::Result<()> {
    for source in sources(root)? {
        // xtask contains the objects: without one of them it could not be built again.
        let fresh = source.with_extension("o.new");
        compile(root, &source, &fresh)?;
        std::fs::rename(&fresh, source.with_extension("o"))?;
    }
    Ok(())
}

/// The objects that are not what their source compiles to.
pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let dir = std::env::temp_dir().join(format!("fdguard-bpf-{}", std::process::id()));
    std::fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
    let outdated = compare(root, &dir);
    std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
    outdated
}

fn compare(root: &Path, dir: &Path) -> anyhow::Result<Vec<String>> {
    let mut outdated = Vec::new();
    for source in sources(root)? {
        let committed = source.with_extension("o");
        let fresh = dir.join("fresh.o");
        compile(root, &source, &fresh)?;
        let is_same = std::fs::read(&committed).ok() == Some(std::fs::read(&fresh)?);
        if !is_same {
            let name = committed.strip_prefix(root).unwrap_or(&committed);
            outdated.push(format!("{}: run cargo run -p xtask -- bpf", name.display()));
        }
    }
    Ok(outdated)
}

fn sources(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let dir = root.join(DIR);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".bpf.c") {
            found.push(path);
        }
    }
    found.sort();
    ensure!(!found.is_empty(), "{DIR} has no programs");
    Ok(found)
}

fn compile(root: &Path, source: &Path, object: &Path) -> anyhow::Result<()> {
    let name = source.file_name().context("a source without a name")?;
    let mut clang = Command::new(CLANG);
    // The name without its path, because it is written into the object.
    clang.current_dir(root.join(DIR)).args(OPTIONS);
    run(clang.arg("-c").arg(name).arg("-o").arg(object))?;
    run(Command::new(OBJCOPY).args(REMOVED).arg(object))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("{program}: apt install clang-14 llvm-14"))?;
    ensure!(status.success(), "{program}: {status}");
    Ok(())
}
