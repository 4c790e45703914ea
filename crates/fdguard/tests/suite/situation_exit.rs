//! Situations 9, 11 and 12: short programs, idle ends, and looks at the moment of exit.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde_json::Value;

use super::situation::{Answer, Session, compiled, is_at, line_of, words};

#[test]
fn situation_9_directories_leaked_before_an_idle_end_fail_a_check_five_times_of_five() {
    let words = words([&compiled("jobs"), &"200", &"4000", &"1500"]);
    let sessions: Vec<Session> = (0..5).map(|_| Session::start("check", &words)).collect();
    for session in sessions {
        let answer = session.end();
        answer.assert_blamed("jobs.c", &[line_of("jobs.c", "LEAK")]);
        assert_eq!(answer.code, 1, "{}", answer.brief());
        assert_eq!(answer.number("HELD"), 20);
        let count = &answer.findings()[0]["count"];
        assert_eq!(count, 20, "{}", answer.brief());
    }
}

/// As long without a job as with jobs: idle is not evidence.
#[test]
fn situation_9_a_longer_idle_end_changes_nothing() {
    let words = words([&compiled("jobs"), &"200", &"4000", &"4000"]);
    for session in ["check", "trace"].map(|verb| Session::start(verb, &words)) {
        let answer = session.end();
        answer.assert_leaking("jobs.c", line_of("jobs.c", "LEAK"));
    }
}

#[test]
fn situation_9_directories_leaked_before_an_idle_end_are_leaking_in_a_trace() {
    let words = words([&compiled("jobs"), &"200", &"4000", &"1500"]);
    let answer = Answer::to("trace", &words);
    answer.assert_leaking("jobs.c", line_of("jobs.c", "LEAK"));
}

/// The sites of a document at these lines of a file.
fn sites<'a>(answer: &'a Answer, file: &str, line: u64) -> Vec<&'a Value> {
    let sites = answer.document["sites"].as_array();
    let sites = sites.unwrap_or_else(|| panic!("no sites: {}", answer.document));
    let at_line = sites.iter();
    at_line
        .filter(|site| is_at(&site["culprit"], file, &[line]))
        .collect()
}

#[test]
fn situation_11_every_way_to_leak_is_a_site_of_the_document() {
    let shapes = [
        "open",
        "creat",
        "pipe",
        "socket",
        "socketpair",
        "dup",
        "dup2",
        "fcntl",
        "accept",
        "recvmsg",
    ];
    for shape in shapes {
        let answer = Answer::to("trace", &words([&compiled("shapes"), &shape]));
        let told: Vec<&str> = answer.told("SITE")[0].split(' ').collect();
        let (line, opened) = (told[0].parse().unwrap(), told[1].parse::<u64>().unwrap());
        let found = sites(&answer, "shapes.c", line);
        assert_eq!(found.len(), 1, "{shape}: {}", answer.document["sites"]);
        let site = found[0];
        let counts = ["opened", "closed", "live"].map(|key| site[key].as_u64());
        let wanted = [Some(opened), Some(0), Some(opened)];
        assert_eq!(counts, wanted, "{shape}: {site}");
        assert_eq!(site["class"], told[2], "{shape}: {site}");
        assert_eq!(site["pid"], answer.document["process"]["pid"], "{shape}");
        assert!(site["verdict"].is_string(), "{shape}: {site}");
        let paths = site["paths"].as_array().unwrap();
        let live: u64 = paths
            .iter()
            .map(|path| path["live"].as_u64().unwrap())
            .sum();
        assert_eq!(live, opened, "{shape}: {site}");
        let is_whole = |path: &Value| !path["stack"].as_array().unwrap().is_empty();
        assert!(paths.iter().all(is_whole), "{shape}: {site}");
    }
}

#[test]
fn situation_11_a_site_that_closed_everything_is_there_too() {
    let answer = Answer::to("trace", &words([&compiled("callers"), &"20", &"400"]));
    let found = sites(&answer, "callers.c", line_of("callers.c", "HELPER"));
    assert!(!found.is_empty(), "{}", answer.document["sites"]);
    let sum = |key: &str| -> u64 { found.iter().map(|site| site[key].as_u64().unwrap()).sum() };
    let (held, kept) = (answer.number("HELD"), answer.number("KEPT"));
    assert_eq!(sum("opened"), 2 * held, "{found:?}");
    assert_eq!(sum("live"), held + kept, "{found:?}");
    assert_eq!(sum("closed"), held - kept, "{found:?}");
}

/// What the victim printed: how many of each class it holds at its end.
fn held_by_victim(answer: &Answer) -> BTreeMap<String, u64> {
    let pair = |told: &str| {
        let (class, count) = told.split_once(' ').unwrap();
        (class.to_owned(), count.parse().unwrap())
    };
    answer.told("HELD").into_iter().map(pair).collect()
}

/// The classes of the leftovers, summed over all lines.
fn left_by_class(answer: &Answer) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for one in answer.document["check"]["leftovers"].as_array().unwrap() {
        let class = one["class"].as_str().unwrap_or("null");
        *sums.entry(class.to_owned()).or_default() += one["count"].as_u64().unwrap();
    }
    sums
}

#[test]
fn situation_12_forty_equal_runs_have_equal_answers() {
    let words: Vec<OsString> = words([&compiled("moment")]);
    let mut held: BTreeMap<String, u32> = BTreeMap::new();
    let mut wrong = Vec::new();
    for _ in 0..5 {
        let sessions: Vec<Session> = (0..8).map(|_| Session::start("check", &words)).collect();
        for session in sessions {
            let answer = session.end();
            *held
                .entry(answer.document["check"]["held"].to_string())
                .or_default() += 1;
            let (left, wanted) = (left_by_class(&answer), held_by_victim(&answer));
            if left != wanted {
                wrong.push(left);
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of 40 runs: {:#?}",
        wrong.len(),
        wrong[0]
    );
    let is_torn = held.keys().any(|held| held.contains("other:socket"));
    assert!(held.len() == 1 && !is_torn, "{held:#?}");
}
