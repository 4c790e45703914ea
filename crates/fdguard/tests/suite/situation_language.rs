//! Situation 14: languages whose lines are not read, and programs executed by a start script.

use testkit::{have, skip};

use super::situation::{Answer, Session, line_of, python, source, words};

/// A leak is found, and either its line is named or a gap says that this language is not read.
fn is_honest(program: &str, script: &str, language: &str) {
    if !have(program) {
        return skip(&format!("needs {program}"));
    }
    let words = words([&program, &source(script), &"0.05", &"5"]);
    for verb in ["trace", "check"] {
        let answer = Answer::to(verb, &words);
        assert_eq!(answer.code, 1, "{}", answer.brief());
        if !answer
            .blaming(script, &[line_of(script, "LEAK")])
            .is_empty()
        {
            continue;
        }
        let gaps = answer.document["gaps"].as_array().unwrap();
        let names_it = gaps.iter().any(|gap| {
            let text = format!("{} {}", gap["what"], gap["why"]);
            text.contains(language) && text.contains("line")
        });
        assert!(names_it, "{verb} {language}: {}", answer.brief());
    }
}

#[test]
fn situation_14_lines_of_perl_are_read_or_the_gap_is_named() {
    is_honest("perl", "leak.pl", "Perl");
}

#[test]
fn situation_14_lines_of_ruby_are_read_or_the_gap_is_named() {
    is_honest("ruby", "leak.rb", "Ruby");
}

#[test]
fn situation_14_lines_of_php_are_read_or_the_gap_is_named() {
    is_honest("php", "leak.php", "PHP");
}

#[test]
fn situation_14_findings_carry_the_name_of_the_program_after_exec() {
    let Some(python) = python() else { return };
    let (start, drip) = (source("start"), source("drip.py"));
    let words = words([&start, &python, &drip, &"0.05", &"5", &"leave"]);
    for session in ["check", "trace"].map(|verb| Session::start(verb, &words)) {
        let answer = session.end();
        assert!(!answer.findings().is_empty(), "{}", answer.brief());
        for finding in answer.findings() {
            let comm = finding["comm"].as_str().unwrap_or_default();
            assert!(comm.starts_with("python"), "{}", answer.brief());
        }
        let comm = answer.document["process"]["comm"].as_str().unwrap();
        assert!(comm.starts_with("python"), "{comm}");
    }
}
