//! The contract of `fdguard.diagnosis/1` and `fdguard.sample/1` as a checker.

use serde_json::Value;

use super::contract::{
    Check, check_object, class, elements, gaps, list, number, number_or_unknown, or_unknown,
    process, text, time, word,
};

const VERDICTS: [&str; 5] = ["leaking", "growing", "bounded", "stable", "unknown"];
const ENDS: [&str; 5] = [
    "time-up",
    "process-ended",
    "interrupted",
    "recording-ended",
    "recording-cut",
];

fn one_of(words: &[&str]) -> impl Fn(&Value) -> bool {
    move |value| words.iter().any(|word| value == word)
}

fn said(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn is_share(value: &Value) -> bool {
    value
        .as_f64()
        .is_some_and(|share| (0.0..=1.0).contains(&share))
}

/// Asserts that this is a `fdguard.diagnosis/1` document.
pub(crate) fn assert_diagnosis(document: &Value) {
    let mut check = Check::default();
    check.key(document, "schema", |schema| schema == "fdguard.diagnosis/1");
    check.key(document, "started_at", time);
    check.key(document, "ended_at", time);
    process(&mut check, check_object(document, "process"));
    check.key(document, "samples", number);
    check.key(document, "baseline", number_or_unknown);
    check.key(document, "final", number_or_unknown);
    check.key(document, "verdict", one_of(&VERDICTS));
    check.key(document, "ended", one_of(&ENDS));
    for finding in elements(check.key(document, "findings", list)) {
        self::finding(&mut check, finding);
    }
    check.key(document, "hazards", |hazards| {
        hazards == &Value::Array(Vec::new())
    });
    let coverage = check_object(document, "coverage");
    check.key(coverage, "backend", |backend| backend == "probe");
    check.key(coverage, "attributed_fds", number);
    check.key(coverage, "live_fds", number_or_unknown);
    check.key(coverage, "lost_events", number);
    for opinion in elements(check.key(document, "processes", list)) {
        self::opinion(&mut check, opinion);
    }
    let before = elements(document.get("predecessors").unwrap_or(&Value::Null));
    for opinion in before {
        self::opinion(&mut check, opinion);
    }
    check.is(worst(document) == document["verdict"], || {
        format!("{} is not the worst verdict", document["verdict"])
    });
    gaps(&mut check, document);
    assert!(check.found.is_empty(), "{}", check.found.join("\n"));
}

/// The most severe verdict of all processes.
fn worst(document: &Value) -> Value {
    let own = elements(&document["processes"]);
    let before = elements(document.get("predecessors").unwrap_or(&Value::Null));
    let rank = |opinion: &&Value| {
        let place = VERDICTS.iter().position(|word| opinion["verdict"] == *word);
        place.unwrap_or(usize::MAX)
    };
    let worst = own.iter().chain(before).min_by_key(rank);
    worst.map_or(Value::Null, |opinion| opinion["verdict"].clone())
}

fn finding(check: &mut Check, finding: &Value) {
    check.key(finding, "rule", said);
    check.key(finding, "pid", number);
    check.key(finding, "comm", text);
    check.key(
        finding,
        "severity",
        one_of(&["info", "warning", "critical"]),
    );
    check.key(finding, "class", or_unknown(class));
    check.key(finding, "target", or_unknown(text));
    check.key(finding, "count", number_or_unknown);
    check.key(finding, "grown", or_unknown(Value::is_i64));
    check.key(finding, "rate_per_min", or_unknown(Value::is_number));
    check.key(finding, "confidence", is_share);
    for wall in elements(check.key(finding, "walls", list)) {
        check.key(wall, "name", said);
        check.key(wall, "eta_seconds", Value::is_number);
    }
    check.key(finding, "why", said);
    check.key(finding, "next_step", said);
    check.key(finding, "origin", Value::is_null);
}

fn opinion(check: &mut Check, opinion: &Value) {
    check.key(opinion, "pid", number);
    check.key(opinion, "comm", text);
    check.key(opinion, "verdict", one_of(&VERDICTS));
    check.key(opinion, "samples", number);
    check.key(opinion, "watched_seconds", Value::is_number);
    for key in ["baseline", "final", "highest"] {
        check.key(opinion, key, number_or_unknown);
    }
    let limits = check_object(opinion, "limits");
    check.key(limits, "soft", number_or_unknown);
    check.key(limits, "hard", number_or_unknown);
    for wall in elements(check.key(opinion, "walls", list)) {
        check.key(wall, "name", said);
        check.key(wall, "at", number);
        check.key(wall, "used", number_or_unknown);
        check.key(wall, "eta_seconds", or_unknown(Value::is_number));
    }
    check.key(opinion, "classes", or_unknown(list));
    for row in elements(&opinion["classes"]) {
        check.key(row, "class", class);
        check.key(row, "count", number);
        check.key(row, "opened", number);
    }
}

/// Asserts that this is a `fdguard.sample/1` document.
pub(crate) fn assert_sample(document: &Value) {
    let mut check = Check::default();
    check.key(document, "schema", |schema| schema == "fdguard.sample/1");
    check.key(document, "at", Value::is_number);
    check.key(document, "pid", number);
    check.key(document, "comm", text);
    for key in ["count", "highest", "opened", "closed"] {
        check.key(document, key, number_or_unknown);
    }
    check.is(word(&document["comm"]), || "no name".to_owned());
    assert!(check.found.is_empty(), "{}", check.found.join("\n"));
}
