use proptest::prelude::*;

use super::{
    Certainty, Explanation, LONGEST_LINE, LogScanner, LogVerdict, NEAR, WallName, explain,
};
use crate::playbook::Playbook;

mod lines;

fn of(playbook: &Playbook, text: &str) -> Explanation {
    explain(playbook, text.lines().map(str::as_bytes), &[]).unwrap()
}

fn ids(explanation: &Explanation) -> Vec<&str> {
    let found = explanation.symptoms.iter();
    found.map(|found| found.id.as_str()).collect()
}

const SURE: &str = "OSError: [Errno 24] Too many open files: '/x'";
const DOUBTFUL: &str = "curl: (6) Could not resolve host: example.org";

#[test]
fn r17_lines_are_counted_with_their_places() {
    let playbook = Playbook::embedded();
    let text = format!("start\n{SURE}\nwork\n{SURE}\nend\n");
    let explanation = of(&playbook, &text);
    assert_eq!(explanation.lines_read, 5);
    assert_eq!(explanation.verdict, LogVerdict::Descriptors);
    let found = &explanation.symptoms[0];
    assert_eq!(found.id, "too-many-open-files");
    assert_eq!((found.count, found.first_line, found.last_line), (2, 2, 4));
    assert_eq!(found.example.as_str(), Some(SURE));
    assert_eq!(found.certainty, Certainty::Certain);
    assert!(explanation.not_counted.is_empty());
}

#[test]
fn r17_a_doubtful_line_counts_only_beside_a_sure_one() {
    let playbook = Playbook::embedded();
    let apart = |before: u64, text: &str| "x\n".repeat(usize::try_from(before).unwrap()) + text;
    let alone = of(&playbook, DOUBTFUL);
    assert_eq!(alone.verdict, LogVerdict::Nothing);
    assert_eq!(alone.not_counted[0].found.id, "name-not-resolved");
    for (text, counts) in [
        (format!("{SURE}\n{DOUBTFUL}"), true),
        (format!("{DOUBTFUL}\n{SURE}"), true),
        (format!("{DOUBTFUL}\n{}", apart(NEAR - 1, SURE)), true),
        (format!("{DOUBTFUL}\n{}", apart(NEAR, SURE)), false),
        (format!("{SURE}\n{}", apart(NEAR - 1, DOUBTFUL)), true),
        (format!("{SURE}\n{}", apart(NEAR, DOUBTFUL)), false),
        (
            format!("bash: fork: Resource temporarily unavailable\n{DOUBTFUL}"),
            false,
        ),
        (
            format!("VFS: file-max limit 1000 reached\n{DOUBTFUL}"),
            true,
        ),
    ] {
        let explanation = of(&playbook, &text);
        let counted = ids(&explanation).contains(&"name-not-resolved");
        assert_eq!(counted, counts, "{text}");
        assert_eq!(explanation.not_counted.is_empty(), counts, "{text}");
    }
}

#[test]
fn r17_a_process_at_its_wall_vouches_for_doubtful_lines() {
    let playbook = Playbook::embedded();
    let look = |near: &[WallName]| explain(&playbook, [DOUBTFUL.as_bytes()], near).unwrap();
    assert_eq!(
        look(&[WallName::SoftLimit]).verdict,
        LogVerdict::Descriptors
    );
    assert_eq!(look(&[WallName::Ptys]).verdict, LogVerdict::Nothing);
}

#[test]
fn r17_a_reset_counts_when_it_repeats() {
    let playbook = Playbook::embedded();
    let reset = "read tcp 10.0.0.1:80: connection reset by peer\n";
    let twice = of(&playbook, &format!("{SURE}\n{reset}{reset}"));
    assert_eq!(ids(&twice), ["too-many-open-files"]);
    assert_eq!(twice.not_counted[0].why, "fewer than 3 lines");
    let often = of(&playbook, &format!("{SURE}\n{reset}{reset}{reset}"));
    assert_eq!(ids(&often), ["too-many-open-files", "connection-reset"]);
    let alone = of(&playbook, &reset.repeat(50));
    assert_eq!(alone.verdict, LogVerdict::Nothing);
}

#[test]
fn r9_another_wall_is_named_as_such() {
    let playbook = Playbook::embedded();
    let inotify = of(
        &playbook,
        "Error: ENOSPC: System limit for number of file watchers reached, watch '/x'",
    );
    assert_eq!(inotify.verdict, LogVerdict::OtherWall);
    assert_eq!(inotify.symptoms[0].wall, WallName::InotifyWatches);
    let nginx = of(
        &playbook,
        "[alert] 7#7: 512 worker_connections are not enough",
    );
    assert_eq!(nginx.verdict, LogVerdict::Nothing);
    assert_eq!(nginx.not_counted[0].why, "not a kernel limit");
}

#[test]
fn no_lines_are_no_verdict() {
    let playbook = Playbook::embedded();
    assert_eq!(of(&playbook, "").verdict, LogVerdict::Empty);
    assert_eq!(of(&playbook, "\n").verdict, LogVerdict::Nothing);
}

#[test]
fn a_user_s_symptom_goes_before_ours_and_lines_can_be_ignored() {
    let user = "ignore = 'health probe*'\n[[symptom]]\nid = 'ours'\npatterns = 'agent pool drained'\n\
                wall = 'soft-limit'\ncertainty = 'certain'\nmeaning = 'm'\nnext = 'n'\n";
    let playbook = Playbook::embedded().extended_by(Playbook::parse(user).unwrap());
    let text = "agent pool drained: too many open files\nhealth probe: too many open files\n";
    assert_eq!(ids(&of(&playbook, text)), ["ours"]);
}

#[test]
fn a_mistake_in_a_symptom_names_its_place() {
    for (text, words) in [
        (
            "[[symptom]]\nid = \"x\"\npatterns = 'abc'\nwall = 'ptys'\ncertainty = 'likely'\nmeaning = 'm'\nnext = 'n'",
            "literal characters in a row",
        ),
        (
            "[[symptom]]\nid = \"x\"\npatterns = []\nwall = 'ptys'\ncertainty = 'likely'\nmeaning = 'm'\nnext = 'n'",
            "at least one pattern",
        ),
        (
            "[[symptom]]\nid = \"x\"\npatterns = 'abcd'\nwall = 'moon'\ncertainty = 'likely'\nmeaning = 'm'\nnext = 'n'",
            "moon",
        ),
    ] {
        let error = Playbook::parse(text).unwrap_err();
        assert_eq!(error.key, "entry \"x\"", "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn long_lines_are_cut_and_the_telling_part_is_shown() {
    let playbook = Playbook::embedded();
    let seen = "é".repeat(20_000) + " EMFILE " + &"ü".repeat(200_000);
    let unseen = "x".repeat(LONGEST_LINE) + " EMFILE";
    let explanation = of(&playbook, &format!("{seen}\n{unseen}\nlast"));
    assert_eq!(explanation.lines_read, 3);
    assert_eq!(explanation.symptoms[0].count, 1);
    let example = &explanation.symptoms[0].example;
    assert!(example.as_str().unwrap().contains(" EMFILE "));
    assert!(example.as_bytes().len() <= 300);
}

#[test]
fn line_ends_of_every_kind_and_bytes_that_are_no_text_are_taken() {
    let playbook = Playbook::embedded();
    let mut scanner = LogScanner::new(&playbook).unwrap();
    scanner.feed(b"\xff\xfe EMFILE\r\n\0\0\nENFILE\r\nno end: EMFILE");
    let explanation = scanner.finish(&[]);
    assert_eq!(explanation.lines_read, 4);
    let first = &explanation.symptoms[0];
    assert_eq!(
        (first.count, first.example.as_bytes()),
        (2, &b"\xff\xfe EMFILE"[..])
    );
    assert_eq!(explanation.symptoms[1].last_line, 3);
}

#[test]
fn every_sentence_of_a_symptom_is_written_in_one_manner() {
    for symptom in Playbook::embedded().symptoms() {
        for sentence in [&symptom.meaning, &symptom.next] {
            assert!(
                !sentence.ends_with('.') && !sentence.contains('\n'),
                "{sentence}"
            );
        }
    }
}

proptest! {
    // Each case builds a scanner, which takes longer than scanning its input.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pieces_say_the_same_as_lines(
        lines in proptest::collection::vec(
            prop_oneof![
                Just(SURE.as_bytes().to_vec()),
                Just(DOUBTFUL.as_bytes().to_vec()),
                Just(b"connection reset by peer".to_vec()),
                proptest::collection::vec(any::<u8>().prop_filter("no line end", |b| *b != b'\n'), 0..40),
            ],
            0..40,
        ),
        cuts in proptest::collection::vec(1..60_usize, 1..20),
    ) {
        let playbook = Playbook::embedded();
        let whole = explain(&playbook, lines.iter().map(Vec::as_slice), &[]).unwrap();
        let mut text = lines.join(&b'\n');
        if !lines.is_empty() {
            text.push(b'\n');
        }
        let mut scanner = LogScanner::new(&playbook).unwrap();
        let (mut rest, mut cuts) = (text.as_slice(), cuts.iter().cycle());
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
            scanner.feed(piece);
            rest = more;
        }
        prop_assert_eq!(scanner.finish(&[]), whole);
    }

    #[test]
    fn any_bytes_may_come(bytes: Vec<u8>) {
        let playbook = Playbook::embedded();
        let mut scanner = LogScanner::new(&playbook).unwrap();
        scanner.feed(&bytes);
        let ends = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let open = u64::from(bytes.last().is_some_and(|byte| *byte != b'\n'));
        prop_assert_eq!(scanner.finish(&[]).lines_read, ends + open);
    }
}
