//! Leaks of Go programs, by the kernel: the line to blame is the program's own, also where a
//! library opened on another goroutine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use fdguard_core::origin::Frame;
use fdguard_trace::{Options, Site, SiteDetail, SourceKind, Symbols, TracedCommand};
use testkit::{GoToolchain, USUAL_GO, go_toolchain, go_toolchains, have, is_root, skip};

/// How many of each the victim leaks.
const COUNT: usize = 3;

/// The line with this mark.
fn line(mark: &str) -> u32 {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/go/leaks.go");
    let text = std::fs::read_to_string(source).unwrap();
    let wanted = format!("// LEAK {mark}");
    let at = text.lines().position(|line| line.ends_with(&wanted));
    u32::try_from(at.unwrap() + 1).unwrap()
}

/// What the program left open, by site.
fn sites(program: &Path, mode: &str) -> Vec<Site> {
    let options = Options {
        keep_ended: true,
        as_server: true,
        source: Some(SourceKind::Kernel),
        ..Options::default()
    };
    let words = [program.as_os_str().to_owned(), OsString::from(mode)];
    let mut traced = TracedCommand::launch(&words, &options).unwrap();
    let pid = traced.pid();
    assert!(traced.wait().unwrap().success());
    // Waits for stacks that are still being unwound.
    traced.session.finish(SiteDetail::Held, true).unwrap();
    let tables = traced.session.tables().unwrap();
    let table = tables.table_of(pid).expect("a table");
    let fds = table.open.keys().copied();
    Site::rank(&tables, table, fds, &mut Symbols::new())
}

/// Functions that lead to a leak, besides the one to blame; some are on another goroutine.
fn leads(mode: &str) -> &'static [&'static str] {
    match mode {
        "body" => &[
            "net/http.(*Transport).dialConn",
            "created by",
            "main.bodies",
        ],
        "rows" => &["database/sql.(*DB).Query", "main.query", "main.databases"],
        _ => &["main.main"],
    }
}

/// Every leak of the victim is blamed on its marked line.
fn names_every_line(program: &Path) {
    for mode in ["files", "body", "command", "rows"] {
        let sites = sites(program, mode);
        let mut blamed: BTreeMap<(String, u32), usize> = BTreeMap::new();
        for site in &sites {
            let Some(culprit) = &site.culprit else {
                continue;
            };
            let file = culprit
                .file
                .as_ref()
                .map(|file| file.to_lossy().into_owned());
            let key = (file.unwrap_or_default(), culprit.line.unwrap_or_default());
            if key.1 == line(mode) {
                for name in leads(mode) {
                    let is_there = |frame: &Frame| frame.function.as_deref() == Some(name);
                    assert!(site.stack.iter().any(is_there), "{name}: {:#?}", site.stack);
                }
            }
            *blamed.entry(key).or_default() += site.open.len();
        }
        let expected = line(mode);
        let found = blamed.iter().find(|((file, line), _)| {
            (file.ends_with("/leaks.go") || file == "./leaks.go") && *line == expected
        });
        let found = found.map(|(_, count)| *count);
        // A pipe has two ends.
        let count = if mode == "command" { 2 * COUNT } else { COUNT };
        assert_eq!(
            found,
            Some(count),
            "{mode} of {}: {blamed:#?} {sites:#?}",
            program.display()
        );
    }
}

const OLDEST: u32 = USUAL_GO[0];
const NEWEST: u32 = USUAL_GO[1];

fn check(build: impl Fn(&GoToolchain) -> Option<PathBuf>, version: u32) {
    if !is_root() {
        return skip("needs root for the kernel's programs");
    }
    if let Some(go) = go_toolchain(version) {
        names_every_line(&build(&go).unwrap());
    }
}

#[test]
fn r19_leaks_of_a_stripped_go_program_are_blamed_on_its_own_lines() {
    check(|go| go.victim("leaks", "bare", &["-ldflags=-s -w"]), NEWEST);
}

#[test]
fn r19_leaks_of_a_go_program_that_can_be_moved_are_blamed_on_its_own_lines() {
    let flags = ["-buildmode=pie", "-ldflags=-s -w"];
    check(|go| go.victim("leaks", "pie", &flags), NEWEST);
}

#[test]
fn r19_leaks_of_a_go_program_with_cgo_are_blamed_on_its_own_lines() {
    if !have("cc") {
        return skip("needs a C compiler");
    }
    check(|go| go.cgo_victim("leaks", "cgo", &[]), NEWEST);
}

#[test]
fn r19_leaks_of_a_program_of_go_1_21_are_blamed_on_its_own_lines() {
    check(|go| go.victim("leaks", "static", &[]), OLDEST);
}

#[test]
fn r19_leaks_of_a_program_of_go_1_27_are_blamed_on_its_own_lines() {
    check(|go| go.victim("leaks", "static", &[]), NEWEST);
}

#[test]
fn r19_creators_are_seen_again_when_an_open_needs_them() {
    if !is_root() {
        return skip("needs root for the kernel's programs");
    }
    let Some(go) = go_toolchains().into_iter().next() else {
        return skip("no Go");
    };
    let program = go.victim("leaks", "static", &[]).unwrap();
    let sites = sites(&program, "late");
    let is_it = |site: &&Site| {
        let culprit = site.culprit.as_ref();
        culprit.is_some_and(|culprit| culprit.line == Some(line("body")))
    };
    let named = sites.iter().filter(is_it).map(|site| site.open.len());
    let named: usize = named.sum();
    // The first dial after many goroutines that opened nothing shows that its creator is missed.
    assert!((COUNT..=2 * COUNT).contains(&named), "{named}: {sites:#?}");
}
