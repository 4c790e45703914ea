//! Situation 13: leaks are judged by call path, not by line.

use super::situation::{Answer, Session, compiled, is_at, line_of, python, source, words};

/// The failing findings of a class are about exactly those descriptors that the victim leaked.
#[track_caller]
fn assert_count(answer: &Answer, class: &str, leaked: u64) {
    let mut findings = answer.findings();
    findings.retain(|one| one["class"] == class);
    assert!(!findings.is_empty(), "{}", answer.brief());
    for finding in findings {
        assert_eq!(finding["count"], leaked, "{}", answer.brief());
    }
}

#[test]
fn situation_13_of_two_callers_of_a_helper_only_the_leaking_one_is_counted() {
    let words = words([&compiled("callers"), &"50", &"6000"]);
    for session in ["check", "trace"].map(|verb| Session::start(verb, &words)) {
        let answer = session.end();
        answer.assert_leaking("callers.c", line_of("callers.c", "HELPER"));
        assert_count(&answer, "regular", answer.number("HELD"));
        for finding in answer.findings() {
            let stack = finding["origin"]["stack"].as_array().unwrap();
            let leaks = [line_of("callers.c", "LEAK")];
            let kept = [line_of("callers.c", "KEPT")];
            let has = |lines: &[u64]| stack.iter().any(|one| is_at(one, "callers.c", lines));
            assert!(has(&leaks) && !has(&kept), "{}", answer.brief());
        }
    }
}

#[test]
fn situation_13_the_event_loop_in_use_is_not_counted_with_leaked_ones() {
    let Some(python) = python() else { return };
    let words = words([&python, &source("loops.py"), &"0.1", &"6"]);
    for session in ["check", "trace"].map(|verb| Session::start(verb, &words)) {
        let answer = session.end();
        answer.assert_leaking("loops.py", line_of("loops.py", "HELPER"));
        let held = answer.number("HELD");
        assert_count(&answer, "eventpoll", held);
        assert_count(&answer, "unix", 2 * held);
    }
}

#[test]
fn situation_patient_11_what_the_library_did_not_see_is_leaking_without_a_line() {
    let words = words([&compiled("unseen"), &"100", &"15000"]);
    let answer = Session::start("trace", &words).end();
    let findings = answer.findings();
    let [finding] = findings.as_slice() else {
        panic!("{}", answer.brief());
    };
    assert_eq!(finding["class"], "regular", "{}", answer.brief());
    assert!(finding["origin"].is_null(), "{}", answer.brief());
    assert_eq!(answer.code, 1, "{}", answer.brief());
    let gaps = answer.document["gaps"].to_string();
    assert!(gaps.contains("the opening line of 1"), "{gaps}");
}
