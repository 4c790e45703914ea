use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{Playbook, Suspect, beside};
use crate::Class;
use crate::class::NAMES;
use crate::rule::{self, RuleKind};
use crate::summary::ClassCount;

fn suspect<'a>(class: &'a Class, target: &'a str, comm: &'a str) -> Suspect<'a> {
    Suspect {
        class,
        target: Some(target.as_bytes()),
        comm: comm.as_bytes(),
        exe: None,
        beside: &[],
    }
}

fn id(playbook: &Playbook, suspect: &Suspect<'_>) -> String {
    playbook.advise(suspect).unwrap().id.clone()
}

fn parsed(text: &str) -> Playbook {
    Playbook::parse(text).unwrap()
}

const SENTENCES: &str = "source = 's'\nconfirm = 'c'\nfix = 'f'\n";

fn entry(id: &str, conditions: &str) -> String {
    format!("[[advice]]\nid = '{id}'\n{conditions}\n{SENTENCES}")
}

#[test]
fn r5_every_class_has_an_answer_of_its_own() {
    let playbook = Playbook::embedded();
    for (class, name) in NAMES {
        let suspect = Suspect {
            target: None,
            ..suspect(class, "", "")
        };
        assert_ne!(id(&playbook, &suspect), "anything", "{name}");
    }
    let other: Class = "other:[landlock-ruleset]".parse().unwrap();
    assert_eq!(id(&playbook, &suspect(&other, "", "")), "kernel-objects");
}

#[test]
fn r5_every_row_of_the_lookup_table_is_there() {
    let playbook = Playbook::embedded();
    for (class, target, comm, expected) in [
        ("eventpoll", "eventpoll", "python3", "python-event-loops"),
        ("eventpoll", "eventpoll", "server", "event-loops"),
        ("pidfd", "pid 41", "server", "process-handles"),
        (
            "tcp:ESTABLISHED",
            "*->1.2.3.4:443",
            "app",
            "connections-kept",
        ),
        ("pipe", "pipe:[*]", "app", "child-stdio"),
        (
            "sqlite-wal",
            "/d/a.db-wal",
            "app",
            "sqlite-pooled-connections",
        ),
        (
            "sqlite-shm",
            "/d/a.db-shm",
            "app",
            "sqlite-pooled-connections",
        ),
        ("sqlite-db", "/d/a.db", "app", "sqlite-unbounded-engine"),
        ("regular", "/models/llama.gguf", "app", "mapped-model"),
        ("unix", "unix", "node", "node-child-stdio"),
        ("regular", "/srv/app/app.log", "streamlit", "log-handlers"),
    ] {
        let class = class.parse().unwrap();
        assert_eq!(id(&playbook, &suspect(&class, target, comm)), expected);
    }
}

#[test]
fn every_lint_finds_its_entry_by_topic() {
    let playbook = Playbook::embedded();
    let without: Vec<&str> = rule::of_kind(RuleKind::Lint)
        .iter()
        .map(|rule| rule.id)
        .filter(|id| playbook.on_topic(id).next().is_none())
        .collect();
    assert_eq!(without, ["stdio-slot", "widowed-pipe"]);
}

#[test]
fn r5_the_most_specific_entry_wins_whatever_the_order() {
    let entries = [
        entry("any", "class = '*'"),
        entry("family", "class = 'tcp:*'"),
        entry("exact", "class = 'tcp:LISTEN'"),
        entry("command", "class = 'tcp:*'\ncomm = 'nginx'"),
        entry("with", "class = '*'\nwith = ['pip*']"),
        entry("target", "class = '*'\ntarget = '*:80'"),
    ];
    let class: Class = "tcp:LISTEN".parse().unwrap();
    let beside = [Class::Pipe];
    let suspect = Suspect {
        beside: &beside,
        ..suspect(&class, "0.0.0.0:80", "nginx")
    };
    let mut kept: Vec<&str> = entries.iter().map(String::as_str).collect();
    for expected in ["target", "with", "command", "exact", "family", "any"] {
        let forwards = parsed(&kept.concat());
        kept.reverse();
        let backwards = parsed(&kept.concat());
        kept.reverse();
        assert_eq!(id(&forwards, &suspect), expected);
        assert_eq!(id(&backwards, &suspect), expected);
        kept.retain(|text| !text.contains(&format!("'{expected}'")));
    }
    assert!(parsed("").advise(&suspect).is_none());
}

#[test]
fn of_equals_the_first_wins() {
    let playbook = parsed(&(entry("one", "class = 'pipe'") + &entry("two", "class = 'pipe'")));
    assert_eq!(id(&playbook, &suspect(&Class::Pipe, "", "")), "one");
}

#[test]
fn r5_a_user_s_entry_goes_before_ours_and_replaces_its_namesake() {
    let user = parsed(&(entry("mine", "class = '*'") + &entry("zombies", "topic = 'zombies'")));
    let count = Playbook::embedded().advice().len();
    let playbook = Playbook::embedded().extended_by(user);
    let suspect = suspect(&Class::Pipe, "pipe:[1]", "python3");
    assert_eq!(id(&playbook, &suspect), "mine");
    assert_eq!(playbook.advice().len(), count + 1);
    assert_eq!(playbook.on_topic("zombies").count(), 1);
    assert_eq!(playbook.about(&Class::Pipe)[0].id, "mine");
    let again = playbook.extended_by(parsed(&entry("newest", "class = '*'")));
    assert_eq!(id(&again, &suspect), "newest");
}

#[test]
fn an_executable_tells_the_language_as_well_as_the_command() {
    let playbook = Playbook::embedded();
    let suspect = Suspect {
        exe: Some(b"/opt/venv/bin/python3.12"),
        ..suspect(&Class::Eventpoll, "eventpoll", "my-service")
    };
    assert_eq!(id(&playbook, &suspect), "python-event-loops");
}

#[test]
fn a_class_lists_its_general_answer_first() {
    let playbook = Playbook::embedded();
    let about: Vec<&str> = playbook
        .about(&Class::Pipe)
        .iter()
        .map(|advice| advice.id.as_str())
        .collect();
    assert_eq!(
        about,
        ["child-stdio", "child-stdio-and-handle", "parent-end-kept"]
    );
}

#[test]
fn entries_are_found_by_any_word_of_theirs() {
    let playbook = Playbook::embedded();
    assert_eq!(playbook.search("CODEX#18881")[0].id, "orphan-processes");
    assert!(playbook.search("pdeathsig").len() == 1);
    assert!(playbook.search("no such word").is_empty());
}

#[test]
fn beside_a_pile_only_what_is_many_counts() {
    let row = |class, count| ClassCount { class, count };
    let classes = [
        row(Class::Pipe, 600),
        row(Class::Pidfd, 200),
        row(Class::Eventpoll, 1),
    ];
    assert_eq!(beside(&classes, &Class::Pipe), [Class::Pidfd]);
    assert_eq!(beside(&[], &Class::Pipe), []);
}

#[test]
fn r5_a_mistake_in_a_file_is_one_line_with_its_place() {
    let good = entry("good", "class = 'pipe'");
    for (text, line, entry_id, words) in [
        (
            format!("{good}[[advice]]\nid = \"bad\"\nclass = 'pipe'\nsorce = 's'\n"),
            10,
            "bad",
            "sorce",
        ),
        (
            format!("{good}[[advice]]\nid = \"bad\"\nclass = 'pipe'\n"),
            7,
            "bad",
            "source",
        ),
        (
            entry("bad", "class = 'pipes'"),
            2,
            "bad",
            "unknown descriptor class \"pipes\"",
        ),
        (entry("Bad Id", "class = 'pipe'"), 2, "Bad Id", "hyphens"),
        (entry("bad", ""), 2, "bad", "needs class or topic"),
        (format!("{good}{good}"), 8, "good", "duplicate id"),
        (
            entry("bad", "class = 7").replace('\'', "\""),
            3,
            "bad",
            "string",
        ),
        (
            entry("bad", "class = 'pipe'").replace("'f'", "' '"),
            2,
            "bad",
            "fix must not be empty",
        ),
    ] {
        let error = Playbook::parse(&text).unwrap_err();
        let said = error.to_string();
        assert_eq!(error.place.map(|place| place.line), Some(line), "{said}");
        assert_eq!(error.key, format!("entry {entry_id:?}"), "{said}");
        assert!(said.contains(words), "{said}");
        assert!(!said.contains('\n'), "{said}");
    }
}

#[test]
fn what_is_no_toml_and_no_playbook_is_told_so() {
    for text in [
        "[[advice",
        "\u{1b}[31m",
        "x = 1",
        "advice = 3",
        "[[advise]]\nid='a'",
    ] {
        let error = Playbook::parse(text).unwrap_err();
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    assert_eq!(parsed("# nothing\n").advice(), []);
}

#[test]
fn entries_are_written_in_one_manner() {
    let playbook = Playbook::embedded();
    let mut ids = BTreeSet::new();
    for advice in playbook.advice() {
        assert!(ids.insert(&advice.id), "{}", advice.id);
        for sentence in [&advice.source, &advice.confirm, &advice.fix] {
            assert!(
                !sentence.ends_with('.') && !sentence.contains('\n'),
                "{sentence}"
            );
        }
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,200}", inner in "[a-z=\\[\\]\"'\n* -]{0,80}") {
        drop(Playbook::parse(&text));
        drop(Playbook::parse(&format!("[[advice]]\n{inner}")));
    }
}
