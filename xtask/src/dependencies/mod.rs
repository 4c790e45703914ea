//! What may come into the tree: `deny.toml` (licences, sources, bans), and the minimum version of
//! Rust.
//!
//! `cargo deny check` reads the same file and knows more (advisories). This check needs nothing but
//! `cargo metadata`, so that every CI run can do it (decision 122).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

mod licence;

const FILE: &str = "deny.toml";
/// The one registry, under both of its names.
const REGISTRY: [&str; 2] = [
    "registry+https://github.com/rust-lang/crates.io-index",
    "sparse+https://index.crates.io/",
];

/// The parts of `deny.toml` that are checked here.
#[derive(Debug, Deserialize)]
struct Deny {
    graph: Graph,
    licenses: Licences,
    bans: Bans,
}

#[derive(Debug, Deserialize)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Licences {
    allow: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

/// A library that only some packages may use directly.
#[derive(Debug, Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    #[serde(default)]
    wrappers: BTreeSet<String>,
    reason: String,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// None for a package of the workspace.
    source: Option<String>,
    rust_version: Option<String>,
    dependencies: Vec<Requirement>,
}

#[derive(Debug, Deserialize)]
struct Requirement {
    name: String,
    req: String,
    path: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}

/// Checks the dependencies of the workspace under `root`.
pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
    let deny: Deny = toml::from_str(&text).context(FILE)?;
    let metadata = metadata(root, &deny.graph.targets)?;
    Ok(complaints(&deny, &metadata))
}

fn metadata(root: &Path, targets: &[String]) -> anyhow::Result<Metadata> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "metadata",
        "--locked",
        "--all-features",
        "--format-version=1",
    ]);
    for target in targets {
        command.arg(format!("--filter-platform={target}"));
    }
    let output = command
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata: {stderr}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn complaints(deny: &Deny, metadata: &Metadata) -> Vec<String> {
    let used = used_packages(metadata);
    let mut complaints = licences(&deny.licenses.allow, &used);
    complaints.extend(bans(&deny.bans.deny, metadata));
    complaints.extend(used.iter().filter_map(|package| foreign_source(package)));
    complaints.extend(used.iter().flat_map(|package| wildcards(package)));
    complaints.extend(too_new(&used));
    complaints
}

/// The packages that are built for one of the targets.
fn used_packages(metadata: &Metadata) -> Vec<&Package> {
    let nodes: BTreeSet<&str> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| &*node.id)
        .collect();
    let packages = metadata.packages.iter();
    packages
        .filter(|package| nodes.contains(&*package.id))
        .collect()
}

/// Packages that cannot be had under an allowed licence, and allowed licences that none has.
fn licences(allowed: &BTreeSet<String>, packages: &[&Package]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut mentioned = BTreeSet::new();
    for package in packages {
        let text = package.license.as_deref().unwrap_or_default();
        mentioned.extend(licence::names(text));
        if !licence::is_allowed(text, allowed) {
            let (name, version) = (&package.name, &package.version);
            complaints.push(format!(
                "{name} {version}: licence {text:?} is not allowed by {FILE}"
            ));
        }
    }
    let unused = allowed
        .iter()
        .filter(|name| !mentioned.contains(name.as_str()));
    complaints.extend(unused.map(|name| format!("{FILE}: no package has the licence {name}")));
    complaints
}

/// Banned libraries and who uses them without being named; and names that are not needed.
fn bans(bans: &[Ban], metadata: &Metadata) -> Vec<String> {
    let packages = metadata.packages.iter();
    let names: BTreeMap<&str, &str> = packages.map(|one| (&*one.id, &*one.name)).collect();
    let mut complaints = Vec::new();
    for ban in bans {
        let uses = |node: &&Node| {
            let mut direct = node.dependencies.iter();
            direct.any(|id| names.get(&**id) == Some(&&*ban.name))
        };
        let users = metadata.resolve.nodes.iter().filter(uses);
        let users: BTreeSet<&str> = users
            .filter_map(|node| names.get(&*node.id).copied())
            .collect();
        let known: BTreeSet<&str> = ban.wrappers.iter().map(String::as_str).collect();
        for user in users.difference(&known) {
            let (name, reason) = (&ban.name, &ban.reason);
            complaints.push(format!("{user} uses {name}, which {FILE} bans: {reason}"));
        }
        for wrapper in known.difference(&users) {
            let name = &ban.name;
            complaints.push(format!(
                "{FILE}: {wrapper} does not use {name}: delete the wrapper"
            ));
        }
    }
    complaints
}

fn foreign_source(package: &Package) -> Option<String> {
    let source = package.source.as_deref()?;
    let is_known = REGISTRY.contains(&source);
    (!is_known).then(|| {
        format!(
            "{} comes from {source}, not from the registry",
            package.name
        )
    })
}

fn wildcards(package: &Package) -> Vec<String> {
    let ours = if package.source.is_none() {
        &package.dependencies[..]
    } else {
        &[]
    };
    let wild = ours
        .iter()
        .filter(|one| one.req == "*" && one.path.is_none());
    wild.map(|one| {
        format!(
            "{}: any version of {}: give a version",
            package.name, one.name
        )
    })
    .collect()
}

/// Packages that need a newer Rust than the workspace declares.
fn too_new(packages: &[&Package]) -> Vec<String> {
    let ours = packages.iter().filter(|package| package.source.is_none());
    let declared = ours.filter_map(|package| package.rust_version.as_deref());
    let Some(declared) = declared.map(version_parts).max() else {
        return vec!["Cargo.toml: no rust-version".to_owned()];
    };
    let needs = |package: &&&Package| {
        let needed = package.rust_version.as_deref().map(version_parts);
        needed.is_some_and(|needed| needed > declared)
    };
    let newer = packages.iter().filter(needs);
    let text = |package: &&Package| {
        let needed = package.rust_version.as_deref().unwrap_or_default();
        let (name, version) = (&package.name, &package.version);
        format!(
            "{name} {version} needs Rust {needed}: raise rust-version of Cargo.toml, or take an older one"
        )
    };
    newer.map(text).collect()
}

/// `1.88` is `1.88.0`, and older than `1.88.1`.
fn version_parts(version: &str) -> [u32; 3] {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests;
