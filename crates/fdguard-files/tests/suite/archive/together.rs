//! Several archives of the same files at once.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::time::Duration;

use fdguard_files::archive::{ArchiveOutcome, ArchiveTrouble};

use super::{PATIENCE, Place, closing, listed, until};

#[test]
fn r49_five_archives_at_once_archive_each_file_exactly_once() {
    for place in Place::both() {
        let paths: Vec<_> = (0..8)
            .map(|n| place.file(&format!("{n}.jsonl"), &format!("{{\"n\":{n}}}\n")))
            .collect();
        let writer = OpenOptions::new().append(true).open(&paths[3]).unwrap();
        let reports = std::thread::scope(|scope| {
            let running: Vec<_> = (0..5)
                .map(|_| scope.spawn(|| place.archive(PATIENCE).run(&paths)))
                .collect();
            until("one has it", || closing(&paths[3]).exists());
            drop(writer);
            running
                .into_iter()
                .map(|one| one.join().unwrap())
                .collect::<Vec<_>>()
        });
        let mut outcomes: BTreeMap<String, Vec<ArchiveOutcome>> = BTreeMap::new();
        for report in &reports {
            assert!(report.success, "{report:?}");
            for receipt in &report.files {
                assert_eq!(receipt.lines, Some(1), "{receipt:?}");
                let name = receipt.source.base_name();
                outcomes.entry(name).or_default().push(receipt.outcome);
            }
        }
        assert_eq!(outcomes.len(), 8);
        for (name, all) in outcomes {
            let count = |wanted| all.iter().filter(|one| **one == wanted).count();
            assert_eq!(count(ArchiveOutcome::Archived), 1, "{name}: {all:?}");
            assert_eq!(count(ArchiveOutcome::AlreadyArchived), 4, "{name}: {all:?}");
        }
        let names: Vec<String> = (0..8).map(|n| format!("{n}.jsonl")).collect();
        assert_eq!(listed(place.to.path()), names);
        assert_eq!(listed(place.logs.path()), Vec::<String>::new());
    }
}

#[test]
fn an_archive_that_has_a_file_is_named_to_the_next_one() {
    let place = Place::same();
    let path = place.file("a", "x\n");
    let writer = OpenOptions::new().append(true).open(&path).unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| place.patiently(&path));
        until("it is closing", || closing(&path).exists());
        let mut second = place
            .archive(Duration::ZERO)
            .run(std::slice::from_ref(&path));
        let error = second.files.remove(0).error.unwrap();
        assert_eq!(error.kind, ArchiveTrouble::BeingArchived);
        assert!(
            error.message.contains("being archived by "),
            "{}",
            error.message
        );
        drop(writer);
        assert_eq!(running.join().unwrap().outcome, ArchiveOutcome::Archived);
    });
}

#[test]
fn files_of_one_name_from_several_dirs_keep_apart() {
    for place in Place::both() {
        let paths: Vec<_> = (0..6)
            .map(|n| {
                let dir = place.logs.path().join(n.to_string());
                std::fs::create_dir(&dir).unwrap();
                let path = dir.join("log");
                std::fs::write(&path, format!("{n}\n")).unwrap();
                path
            })
            .collect();
        std::thread::scope(|scope| {
            for path in &paths {
                scope.spawn(|| {
                    let receipt = place.patiently(path);
                    assert_eq!(receipt.outcome, ArchiveOutcome::Archived, "{receipt:?}");
                });
            }
        });
        let lines = super::all_lines(&[place.to.path()]);
        assert_eq!(lines, ["0", "1", "2", "3", "4", "5"]);
        place.assert_tidy();
    }
}
