//! Situation 15: descriptors held on purpose, or for a while, cause no findings.

use std::ffi::OsString;

use super::situation::{Answer, Session, compiled, python, source, words};

const SHAPES: [&str; 7] = [
    "pool-unused",
    "pool-used",
    "pool-connections",
    "cache-hits",
    "cache-evictions",
    "burst",
    "sawtooth",
];

/// Runs all of these at once under `check` and `trace`; reports each one with findings.
#[track_caller]
fn all_quiet(runs: &[(&str, Vec<OsString>)]) {
    let mut loud = Vec::new();
    for some in runs.chunks(4) {
        let start = |verb| {
            some.iter()
                .map(move |(_, words)| Session::start(verb, words))
        };
        let sessions: Vec<Session> = start("check").chain(start("trace")).collect();
        let names = some.iter().map(|(name, _)| name);
        let verbs = ["check", "trace"].into_iter();
        let labels: Vec<_> = verbs
            .flat_map(|verb| names.clone().map(move |name| (verb, name)))
            .collect();
        for (session, label) in sessions.into_iter().zip(labels) {
            let answer = session.end();
            if !is_quiet(&answer) {
                loud.push(format!("{label:?}: {}\n", answer.brief()));
            }
        }
    }
    assert!(loud.is_empty(), "{}", loud.concat());
}

fn is_quiet(answer: &Answer) -> bool {
    let verdict = answer.verdict();
    answer.code == 0 && answer.findings().is_empty() && !matches!(verdict, "leaking" | "growing")
}

fn in_c(shapes: &[&'static str], time: &str) -> Vec<(&'static str, Vec<OsString>)> {
    let program = compiled("quiet");
    let run = |shape: &&'static str| (*shape, words([&program, shape, &time]));
    shapes.iter().map(run).collect()
}

fn in_python(shapes: &[&'static str], time: &str) -> Vec<(&'static str, Vec<OsString>)> {
    let Some(python) = python() else {
        return Vec::new();
    };
    let run = |shape: &&'static str| (*shape, words([&python, &source("quiet.py"), shape, &time]));
    shapes.iter().map(run).collect()
}

#[test]
fn situation_15_pools_caches_bursts_and_saw_teeth_in_c_are_quiet() {
    all_quiet(&in_c(&SHAPES, "8000"));
}

#[test]
fn situation_15_pools_caches_bursts_and_saw_teeth_in_python_are_quiet() {
    all_quiet(&in_python(&SHAPES, "8"));
}

#[test]
fn situation_15_a_pool_or_cache_of_a_short_program_in_c_is_quiet() {
    all_quiet(&in_c(&SHAPES, "2500"));
}

#[test]
fn situation_15_a_pool_or_cache_of_a_short_program_in_python_is_quiet() {
    all_quiet(&in_python(&SHAPES, "2.5"));
}

#[test]
fn situation_15_a_merge_of_two_hundred_files_in_a_second_is_quiet() {
    all_quiet(&in_c(&["merge", "merge"], "1000"));
    all_quiet(&in_python(&["merge", "merge"], "1"));
}

#[test]
fn situation_patient_15_pools_caches_bursts_and_saw_teeth_of_20_s_are_quiet() {
    let mut runs = in_c(&SHAPES, "20000");
    runs.truncate(4);
    all_quiet(&runs);
}
