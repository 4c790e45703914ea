//! Files without writers, and names that need care.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Duration;

use fdguard_files::archive::{
    ArchiveMethod, ArchiveOutcome, ArchiveStep, ArchiveTrouble, UnusedProof,
};

use super::{Place, listed, one, open_descriptors};

#[test]
fn r50_a_file_that_nobody_writes_goes_by_a_new_name_and_the_receipt_says_what_is_in_it() {
    let place = Place::same();
    let path = place.file("a.jsonl", "{\"n\":1}\n{\"n\":2}\n");
    let before = path.metadata().unwrap();
    let descriptors = open_descriptors();
    let receipt = place.once(&path);
    assert_eq!(open_descriptors(), descriptors);
    assert_eq!(receipt.outcome, ArchiveOutcome::Archived);
    assert_eq!(
        (receipt.method, receipt.proof, receipt.links),
        (
            Some(ArchiveMethod::Rename),
            Some(UnusedProof::Lease),
            Some(1)
        )
    );
    assert_eq!((receipt.lines, receipt.bytes), (Some(2), Some(16)));
    let tail = receipt.tail.unwrap();
    assert_eq!((tail.torn_bytes, tail.last_line_is_json), (0, Some(true)));
    assert!(receipt.free_since.is_some() && receipt.writers.is_empty());
    assert!(receipt.steps_ms.seconds(ArchiveStep::Settled).is_some());
    let after = place.to.path().join("a.jsonl").metadata().unwrap();
    assert_eq!(before.ino(), after.ino());
    assert_eq!(listed(place.logs.path()), Vec::<String>::new());
    assert_eq!(listed(place.to.path()), ["a.jsonl"]);
}

#[test]
fn r50_a_copy_to_another_file_system_is_the_same_file_in_all_but_its_number() {
    let Some(place) = Place::across() else { return };
    let text: String = (0..100_000).map(|n| format!("line {n}\n")).collect();
    let path = place.file("big.log", &text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let before = path.metadata().unwrap();
    let descriptors = open_descriptors();
    let receipt = place.once(&path);
    assert_eq!(open_descriptors(), descriptors);
    assert_eq!(receipt.outcome, ArchiveOutcome::Archived, "{receipt:?}");
    assert_eq!(
        (receipt.method, receipt.lines),
        (Some(ArchiveMethod::Copy), Some(100_000))
    );
    assert_eq!(place.archived("big.log"), text);
    let after = place.to.path().join("big.log").metadata().unwrap();
    assert_eq!(after.mode(), before.mode());
    assert_eq!(
        (after.mtime(), after.mtime_nsec()),
        (before.mtime(), before.mtime_nsec())
    );
    assert!(!path.exists());
    place.assert_tidy();
}

#[test]
fn the_hash_is_the_one_that_others_compute() {
    for place in Place::both() {
        let path = place.file("a", "abc");
        let receipt = place.once(&path);
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(receipt.sha256.as_deref(), Some(known));
    }
}

#[test]
fn a_torn_tail_is_kept_and_told() {
    for place in Place::both() {
        let whole = "{\"n\":1}\n{\"n\":";
        let receipt = place.once(&place.file("a.jsonl", whole));
        let tail = receipt.tail.unwrap();
        assert_eq!((tail.torn_bytes, tail.last_line_is_json), (5, Some(false)));
        assert_eq!(
            (receipt.lines, receipt.outcome),
            (Some(1), ArchiveOutcome::Archived)
        );
        assert_eq!(place.archived("a.jsonl"), whole);
    }
}

#[test]
fn an_empty_file_is_archived_too() {
    for place in Place::both() {
        let receipt = place.once(&place.file("empty.jsonl", ""));
        assert_eq!(
            (receipt.outcome, receipt.lines, receipt.bytes),
            (ArchiveOutcome::Archived, Some(0), Some(0))
        );
        assert_eq!(receipt.tail.unwrap().last_line_is_json, None);
        assert_eq!(listed(place.to.path()), ["empty.jsonl"]);
    }
}

#[test]
fn nothing_in_the_archive_is_ever_overwritten() {
    for place in Place::both() {
        for round in 0..3 {
            let receipt = place.once(&place.file("a", &format!("{round}\n")));
            assert_eq!(receipt.outcome, ArchiveOutcome::Archived);
        }
        assert_eq!(listed(place.to.path()), ["a", "a.1", "a.2"]);
        assert_eq!(
            ["a", "a.1", "a.2"].map(|name| place.archived(name)),
            ["0\n", "1\n", "2\n"]
        );
        let path = place.file("a", "3\n");
        let mut archive = place.archive(Duration::ZERO);
        archive.no_rename = true;
        let receipt = one(archive.run(std::slice::from_ref(&path)));
        assert_eq!(receipt.error.unwrap().kind, ArchiveTrouble::Collision);
        assert_eq!(receipt.outcome, ArchiveOutcome::Kept);
        assert_eq!(fs::read_to_string(&path).unwrap(), "3\n");
        place.assert_tidy();
    }
}

#[test]
fn a_name_that_is_no_text_comes_through() {
    for place in Place::both() {
        let name = OsStr::from_bytes(b"log-\xff\xfe.jsonl");
        let path = place.logs.path().join(name);
        fs::write(&path, "{}\n").unwrap();
        let receipt = place.once(&path);
        assert_eq!(receipt.outcome, ArchiveOutcome::Archived);
        assert!(place.to.path().join(name).exists());
        let json = serde_json::to_value(&receipt).unwrap();
        assert!(json["source"]["bytes"].is_string(), "{json}");
    }
}

#[test]
fn a_file_that_is_named_twice_is_archived_once() {
    let place = Place::same();
    let path = place.file("a", "x\n");
    let again = place.logs.path().join(".").join("a");
    let report = place
        .archive(Duration::ZERO)
        .run(&[path.clone(), again, path]);
    assert_eq!(report.files.len(), 1, "{report:?}");
    assert!(report.success);
}

#[test]
fn hundreds_of_files_need_few_descriptors() {
    let place = Place::same();
    let paths: Vec<_> = (0..300)
        .map(|n| place.file(&format!("log-{n}"), &format!("{n}\n")))
        .collect();
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit {
            current: Some(120),
            maximum: Some(120),
        },
    )
    .unwrap();
    let report = place.archive(Duration::ZERO).run(&paths);
    assert!(report.success);
    assert_eq!(listed(place.to.path()).len(), 300);
}
