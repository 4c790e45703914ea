use fdguard_core::Gap;
use fdguard_core::finding::Finding;
use fdguard_core::lint::Severity;
use fdguard_core::origin::{Culprit, Language, Origin};

use crate::report::trace::testing::{MadeReport, curves, frame, hazard};
use crate::report::trace::tree::StackNode;

fn page(made: &MadeReport) -> String {
    let report = made.report();
    super::page(&report, &[], &StackNode::from_report(&report), "word")
}

const EVIL: &str = "<script>alert(3)</script>";

fn made() -> MadeReport {
    let main = frame(EVIL, Some(("/srv/<img src=x>.py", 9)), Language::Python);
    let inner = frame("arm", Some(("/srv/main.c", 3)), Language::C);
    let stack = [inner.clone(), main.clone()];
    let mut made = MadeReport::default()
        .site("srv", &stack, 75)
        .site("srv", &[main], 25);
    made.curves = Some(curves(&[4, 40, 120]));
    made.diagnosis.hazards = vec![hazard()];
    made.diagnosis.findings = vec![Finding {
        rule: "leak".to_owned(),
        pid: 100,
        comm: "srv".into(),
        severity: Severity::Critical,
        class: None,
        target: None,
        count: Some(75),
        grown: Some(75),
        rate_per_min: Some(60.0),
        confidence: 0.9,
        walls: Vec::new(),
        why: format!("75 more {EVIL}"),
        next_step: "close them".to_owned(),
        origin: Some(Origin {
            leaking_caller: None,
            through: Vec::new(),
            partly: false,
            culprit: Some(Culprit::from(&inner)),
            stack: vec![inner],
            thread: Some(7),
            live: 75,
            opened: 150,
            closed: 75,
            oldest_age_seconds: Some(300.0),
        }),
        shape: None,
        advice: None,
        cleared: None,
    }];
    made.diagnosis.gaps = vec![Gap::new("this", EVIL, "that")];
    made
}

#[test]
fn the_page_has_everything_in_its_order() {
    let html = page(&made());
    let at = |part: &str| html.find(part).unwrap_or_else(|| panic!("{part}: {html}"));
    let order = [
        at("<p class=\"verdict critical\"><strong>leaking</strong>"),
        at("<h2>hazards</h2>"),
        at("<b>closed by</b> run.py:51 interrupt (thread 123) <em>at fault</em>"),
        at("<h2>findings</h2>"),
        at("<b>opened by</b> main.c:3 arm: 75 live of 150"),
        at("<h2>call sites of open descriptors</h2>"),
        at("<tr><td data-v=\"main.c:3 arm\">"),
        at("<h2>flame graph of open descriptors</h2>"),
        at("<svg class=\"flame\""),
        at("<h2>descriptors over time</h2>"),
        at("<h2>not seen</h2>"),
    ];
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(html.matches("<tr><td data-v=").count(), 2);
    assert!(
        html.contains(
            "<td class=\"n\" data-v=\"75\">75</td><td class=\"n\" data-v=\"150\">150</td>"
        ),
        "{html}"
    );
}

#[test]
fn foreign_names_are_text_and_nothing_is_fetched() {
    let html = page(&made());
    assert_eq!(html.matches("<script").count(), 1, "only our own");
    assert!(html.contains("<script nonce=\"word\">") && html.contains("script-src 'nonce-word'"));
    assert!(
        html.contains("&lt;script&gt;alert(1)&lt;/script&gt;.log"),
        "the target: {html}"
    );
    assert!(
        html.contains("&lt;script&gt;alert(2)&lt;/script&gt;"),
        "the command: {html}"
    );
    assert!(
        html.contains("&lt;script&gt;alert(3)&lt;/script&gt;"),
        "the function: {html}"
    );
    for never in [
        "<img", "http:", "https:", "href=", "src=\"", "url(", "@import", "\u{1b}", "onerror=",
        "onclick=",
    ] {
        assert!(!html.contains(never), "{never}");
    }
}

#[test]
fn a_trace_that_found_nothing_says_so() {
    let html = page(&MadeReport::default());
    assert!(
        html.contains("No traced descriptor is still open."),
        "{html}"
    );
    for absent in [
        "<h2>hazards",
        "<h2>findings",
        "<h2>flame",
        "<h2>descriptors over",
        "<h2>not seen",
    ] {
        assert!(!html.contains(absent), "{absent}");
    }
}

#[test]
fn the_process_is_told_where_there_are_several() {
    let one = page(&made());
    assert!(
        !one.contains(">process</th>") && one.contains(">target</th></tr>"),
        "{one}"
    );
    let several = page(&made().site("other", &[], 3));
    assert!(several.contains(">process</th></tr>"), "{several}");
    assert!(several.contains("<td>other (101)</td></tr>"), "{several}");
}
