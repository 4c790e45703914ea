//! The report opens with the answer: the line, the numbers, and the source line itself.

use std::path::Path;

use super::situation::{line_of, python, source, text_of, words};

/// The directory that contains the victims' directory: paths in the report are relative to it.
fn testkit_dir() -> std::path::PathBuf {
    source("").parent().map(Path::to_owned).unwrap()
}

#[test]
fn situation_the_first_line_of_a_trace_is_the_answer() {
    let Some(python) = python() else { return };
    let line = line_of("drip.py", "LEAK");
    for end in ["leave", "close"] {
        let words = words([&python, &source("drip.py"), &"0.05", &"6", &end]);
        let report = text_of("trace", &words, &testkit_dir());
        let first = report.lines().next().unwrap_or_default();
        let start = format!("leaking: situations/drip.py:{line} in work() opened ");
        let rest = first.strip_prefix(&start);
        assert!(rest.is_some(), "{end}: {report}");
        let rest = rest.unwrap();
        let opened: u64 = rest.split(' ').next().unwrap().parse().unwrap();
        assert!((60..=120).contains(&opened), "{first}");
        // All are closed in one sweep at the end, which does not count for the line.
        assert!(rest.contains(", closed 0"), "{end}: {first}");
        assert!(first.contains("/etc/passwd"), "{first}");
        let text = r#"held.append(os.open("/etc/passwd", os.O_RDONLY))"#;
        let shown = report.lines().take(6).any(|line| line.contains(text));
        assert!(shown, "the source line itself: {report}");
        assert_eq!(
            report.contains("closed at shutdown"),
            end == "close",
            "{report}"
        );
        let whole = source("drip.py").display().to_string();
        assert!(!report.contains(&format!("{whole}:")), "{report}");
    }
}

#[test]
fn situation_a_trace_of_c_names_the_function_and_the_source_line() {
    let line = line_of("jobs.c", "LEAK");
    let program = super::situation::compiled("jobs");
    let words = words([&program, &"50", &"6000", &"100"]);
    let report = text_of("trace", &words, &testkit_dir());
    let first = report.lines().next().unwrap_or_default();
    let start = format!("leaking: situations/jobs.c:{line} in job() opened 120 ");
    assert!(first.starts_with(&start), "{report}");
    assert!(first.contains(", closed 0"), "{report}");
    assert!(
        report.contains(r#"DIR *dir = opendir("/etc");"#),
        "{report}"
    );
}
