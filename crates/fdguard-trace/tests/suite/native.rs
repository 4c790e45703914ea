//! Programs in C++ and Rust: the lines that opened what is open, by readable names.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use fdguard_trace::Site;
use testkit::{compiled, have, skip};

use super::run::{Outcome, alone_words, traced_words};

const CPP: &str = "c/objects.cpp";
const RUST: &str = "rust/keeps_files.rs";

fn cpp(variant: &str, flags: &[&str]) -> Option<PathBuf> {
    if !have("c++") {
        skip("needs c++");
        return None;
    }
    let mut all = vec!["-std=c++17", "-pthread", "-Wall", "-Wextra", "-Werror"];
    all.extend(flags);
    compiled("c++", CPP, &format!("objects-{variant}"), &all)
}

fn rust(variant: &str, flags: &[&str]) -> Option<PathBuf> {
    if !have("rustc") {
        skip("needs rustc");
        return None;
    }
    let mut all = vec!["--edition", "2021"];
    all.extend(flags);
    compiled("rustc", RUST, &format!("held-{variant}"), &all)
}

/// Runs it both ways, which must behave the same; returns what it left open.
fn sites(program: PathBuf) -> Vec<Site> {
    let words = [program.into_os_string()];
    let without = alone_words(&words);
    let run = traced_words(&words);
    let Outcome { said, status } = &run.outcome;
    assert_eq!(run.outcome, without);
    assert!(status.success() && !said.is_empty());
    let sites = run.sites();
    for function in sites.iter().flat_map(|site| site.stack.iter()) {
        let name = function.function.as_deref().unwrap_or_default();
        assert!(!name.contains("_ZN") && !name.starts_with("_R"), "{name}");
    }
    sites
}

/// Each mark (`// LEAK count what`) is on the line that leaks as many.
fn names_every_line(source: &str, sites: &[Site]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testkit")
        .join(source);
    let text = fs::read_to_string(path).unwrap();
    let name = source.rsplit('/').next().unwrap();
    let mut marked = HashSet::new();
    for (at, line) in text.lines().enumerate() {
        let Some((_, mark)) = line.split_once("// LEAK ") else {
            continue;
        };
        let line = u32::try_from(at + 1).unwrap();
        marked.insert(line);
        let of_line = sites.iter().filter(|site| {
            let culprit = site.culprit.as_ref();
            culprit.is_some_and(|culprit| {
                let file = culprit.file.as_ref().and_then(|file| file.as_str());
                culprit.line == Some(line) && file.is_some_and(|file| file.ends_with(name))
            })
        });
        let live: usize = of_line.map(|site| site.open.len()).sum();
        let wanted: usize = mark.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(live, wanted, "{mark}: {sites:#?}");
    }
    assert!(marked.len() > 4);
    for site in sites {
        let line = site.culprit.as_ref().and_then(|culprit| culprit.line);
        assert!(line.is_some_and(|line| marked.contains(&line)), "{site:#?}");
    }
}

#[test]
fn r18_cpp_lines_are_named_as_built_for_debugging() {
    if let Some(program) = cpp("O0", &["-O0", "-g"]) {
        names_every_line(CPP, &sites(program));
    }
}

#[test]
fn r18_cpp_lines_are_named_as_built_for_use() {
    if let Some(program) = cpp("O2", &["-O2", "-g", "-fomit-frame-pointer"]) {
        names_every_line(CPP, &sites(program));
    }
}

#[test]
fn r18_rust_lines_are_named_as_built_for_debugging() {
    if let Some(program) = rust("debug", &["-g"]) {
        names_every_line(RUST, &sites(program));
    }
}

#[test]
fn r18_rust_lines_are_named_as_built_for_use() {
    if let Some(program) = rust("release", &["-O", "-g"]) {
        names_every_line(RUST, &sites(program));
    }
}

#[test]
fn r18_without_debug_information_functions_are_named() {
    let names = |program: PathBuf| -> Vec<(String, usize)> {
        let sites = sites(program);
        let name = |site: &Site| site.culprit.as_ref().and_then(|one| one.function.clone());
        let named = sites
            .iter()
            .map(|site| (name(site).unwrap_or_default(), site.open.len()));
        named.collect()
    };
    if let Some(program) = rust("bare", &["-C", "debuginfo=0"]) {
        let names = names(program);
        let live = |wanted: &str| -> usize {
            let named = names.iter().filter(|(name, _)| name.contains(wanted));
            named.map(|(_, live)| *live).sum()
        };
        assert_eq!(live("Keep>::keep"), 3, "{names:?}");
        assert_eq!(live("held::spawn"), 2, "{names:?}");
        assert_eq!(live("held::listen"), 2, "{names:?}");
        assert_eq!(live("held::main::"), 5, "closures: {names:?}");
    }
    if let Some(program) = cpp("bare", &["-O2"]) {
        let names = names(program);
        assert!(
            names.contains(&("shop::risky(int)".to_owned(), 4)),
            "{names:?}"
        );
        assert!(
            names.contains(&("shop::Box<long>::put(char const*)".to_owned(), 1)),
            "{names:?}"
        );
    }
}
