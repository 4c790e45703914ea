//! What is kept of an answer.

use std::collections::BTreeMap;
use std::time::Duration;

use fdguard_core::origin::{Culprit, Language};
use fdguard_why::{Basis, Chain, FirstWalk, Why};

use super::{Group, HeapAnswer, HeapWatch, ProcessHeap, SiteWhy, process_why};

/// A chain that holds so many descriptors.
fn chain(count: usize) -> Chain {
    Chain {
        basis: Basis::Object,
        count,
        fds: (0..).take(count).collect(),
        owner: None,
        holders: Vec::new(),
        root: None,
        also: None,
        text: format!("chain of {count}"),
    }
}

/// Descriptors of one place, or of before, held by fifteen chains: 15 by the first, 14 by the next.
fn site(culprit: Option<Culprit>) -> SiteWhy {
    let answer = HeapAnswer {
        whys: vec![Why {
            chains: (1..=15).rev().map(chain).collect(),
            more: 1,
            last_use: None,
        }],
        stop: Duration::from_micros(1500),
        objects: 7,
        unreachable: None,
        seen: FirstWalk::default(),
    };
    let group = Group {
        culprit,
        fds: (0..121).collect(),
    };
    // There is no such process.
    let why = process_why(0, vec![group], &BTreeMap::new(), Some(answer), None);
    assert_eq!(
        (why.stop_ms, why.waited_ms, why.walks),
        (Some(1.5), None, 1)
    );
    why.sites.into_iter().next().unwrap()
}

fn counts(site: &SiteWhy) -> Vec<usize> {
    site.why.chains.iter().map(|chain| chain.count).collect()
}

#[test]
fn a_line_has_three_chains_and_the_rest_is_counted() {
    let line = Culprit {
        file: Some("app.py".into()),
        function: Some("work".to_owned()),
        line: Some(7),
        language: Language::Python,
    };
    let of_line = site(Some(line));
    assert_eq!(counts(&of_line), [15, 14, 13]);
    // One that was not looked at, and twelve chains of 1 to 12.
    assert_eq!(of_line.why.more, 1 + 78);
}

#[test]
fn what_was_open_before_has_many_reasons_and_twelve_chains() {
    let before = site(None);
    assert_eq!(counts(&before), [15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4]);
    assert_eq!(before.why.more, 1 + 6);
}

#[test]
fn a_process_has_the_sum_of_its_waits() {
    let answer = process_why(7, Vec::new(), &BTreeMap::new(), None, None);
    let process = |milliseconds| ProcessHeap {
        answer: Some(answer.clone()),
        waited: Duration::from_millis(milliseconds),
        ..ProcessHeap::default()
    };
    let watch = HeapWatch {
        processes: BTreeMap::from([(7, process(35)), (8, process(0))]),
        ..HeapWatch::default()
    };
    let answers = watch.answers();
    let waits: Vec<Option<f64>> = answers.iter().map(|one| one.waited_ms).collect();
    assert_eq!(waits, [Some(35.0), None]);
}
