//! Programs in several languages that the kernel traces while they run: the line is named where it
//! can be, and a gap says where not.

use serde_json::Value;

use super::attaching::{AttachOutcome, Attaching};
use super::kernel_trace::may_trace;
use super::orders::{self, Ordered};

const ROUNDS: u64 = 4;

/// Traces some rounds of a program.
fn traced(ordered: Option<Ordered>) -> Option<AttachOutcome> {
    let mut ordered = ordered.filter(|_| may_trace())?;
    let pid = ordered.pid().to_string();
    let words = ["trace", "--every", "20ms", "--source", "ebpf", &pid];
    let mut attaching = Attaching::start(&words);
    attaching.wait_for("tracing by the kernel");
    for _ in 0..ROUNDS {
        ordered.work();
    }
    let outcome = attaching.interrupt();
    // It goes on.
    ordered.work();
    assert_eq!(outcome.found["coverage"]["backend"], "ebpf");
    assert_eq!(outcome.found["coverage"]["lost_events"], 0);
    Some(outcome)
}

fn names_the_line(ordered: Option<Ordered>, file: &str, function: &str) {
    let Some(outcome) = traced(ordered) else {
        return;
    };
    let sites = outcome.found["sites"].as_array().unwrap();
    let has = |site: &Value, key: &str, part: &str| {
        let text = site["culprit"][key].as_str();
        text.is_some_and(|text| text.contains(part))
    };
    let mut kept = sites.iter().filter(|site| {
        site["live"] != 0 && has(site, "file", file) && has(site, "function", function)
    });
    let site = kept.next().unwrap_or_else(|| panic!("{outcome:?}"));
    assert_eq!(site["live"], ROUNDS, "{outcome:?}");
    assert!(site["culprit"]["line"].is_u64(), "{site}");
}

/// No line, no wrong line, and a gap that says so.
fn says_that_there_are_no_lines(ordered: Option<Ordered>, language: &str) {
    let Some(outcome) = traced(ordered) else {
        return;
    };
    let gaps = outcome.found["gaps"].as_array().unwrap();
    let is_said = |gap: &&Value| {
        let what = gap["what"].as_str().unwrap();
        what.contains("lines") && what.contains(language) && gap["remedy"] != ""
    };
    assert_eq!(gaps.iter().filter(is_said).count(), 1, "{gaps:#?}");
    // What it holds is known all the same.
    let sites = outcome.found["sites"].as_array().unwrap();
    let live: u64 = sites.iter().filter_map(|one| one["live"].as_u64()).sum();
    assert!(live >= ROUNDS, "{sites:#?}");
}

#[test]
fn r19_a_line_of_cpp_is_named_by_the_kernel() {
    names_the_line(orders::cpp(), "orders.cpp", "keep");
}

#[test]
fn r19_a_line_of_rust_is_named_by_the_kernel() {
    names_the_line(orders::rust(), "orders.rs", "keep");
}

#[test]
fn r19_a_line_of_python_is_named_by_the_kernel() {
    names_the_line(orders::python(), "orders.py", "keep");
}

#[test]
fn r19_lines_of_node_are_a_gap_of_the_kernel() {
    says_that_there_are_no_lines(orders::node(), "Node");
}

#[test]
fn r19_lines_of_java_are_a_gap_of_the_kernel() {
    says_that_there_are_no_lines(orders::java(), "Java");
}
