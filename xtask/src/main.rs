//! Chores of the project: the border check between the crates, the generated pages, the check of
//! dependencies, and the kernel programs.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;

mod api;
mod architecture;
mod borders;
mod bpf;
mod dependencies;
#[cfg(test)]
mod examples;
mod generate;
mod glossary;
mod markdown;
mod names;
mod repeats;
mod sleeps;
mod source;
mod width;

/// Chores of the project.
#[derive(Debug, Parser)]
#[command(name = "xtask")]
enum Chore {
    /// Check which crate may use which, and what its source may contain.
    Borders,
    /// List the places of product code that share eight or more lines, and count its lines.
    Repeats,
    /// Write the man pages, the index of rules and the interface of fdguard-canary under
    /// docs/generated.
    Gen {
        /// Write nothing; fail if a file is not up to date.
        #[arg(long)]
        check: bool,
    },
    /// Check licences, sources and bans of deny.toml, and the minimum version of Rust.
    Dependencies,
    /// Compile the kernel programs with clang 14.
    Bpf {
        /// Write nothing; fail if an object is not up to date.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    let root = root()?;
    let (done, complaints) = match Chore::parse() {
        Chore::Borders => ("borders hold", borders::check(&root)?),
        Chore::Repeats => {
            let found = borders::repeats(&root)?;
            write!(std::io::stdout().lock(), "{found}")?;
            let complaints = found.complaints.iter().map(ToString::to_string);
            ("every pair has its reason", complaints.collect())
        }
        Chore::Gen { check: true } => ("generated files are fresh", generate::check(&root)?),
        Chore::Gen { check: false } => {
            generate::write(&root)?;
            ("generated files written", Vec::new())
        }
        Chore::Dependencies => ("dependencies are allowed", dependencies::check(&root)?),
        Chore::Bpf { check: true } => ("kernel programs are fresh", bpf::check(&root)?),
        Chore::Bpf { check: false } => {
            bpf::write(&root)?;
            ("kernel programs compiled", Vec::new())
        }
    };
    let mut stderr = std::io::stderr().lock();
    for complaint in &complaints {
        writeln!(stderr, "{complaint}")?;
    }
    if complaints.is_empty() {
        writeln!(stderr, "xtask: {done}")?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

/// The root directory of the workspace: the parent of this crate.
fn root() -> anyhow::Result<PathBuf> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    Ok(above.context("xtask has no folder above it")?.to_owned())
}
