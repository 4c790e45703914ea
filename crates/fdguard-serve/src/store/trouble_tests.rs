//! What happens to the file while it is written.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::file::StoreFile;
use super::tests::{batch, minute, options, web};
use super::{ServiceHistory, StoreWriter, read_history};

/// The history of the first service, once it has this many samples.
fn wait_for_samples(path: &Path, count: usize) -> ServiceHistory {
    testkit::wait_for("the samples", || {
        let found = read_history(path, "web", None).ok()?;
        let one = found.into_iter().next()?;
        (one.samples.len() == count).then_some(one)
    })
}

fn writer(path: &Path) -> StoreWriter {
    let (file, aside) = StoreFile::open(options(path, 1 << 26), minute(0)).unwrap();
    assert_eq!(aside, None);
    StoreWriter::start(file).unwrap()
}

#[test]
fn a_file_that_is_damaged_while_it_is_written_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let writer = writer(&path);
    // More than SQLite keeps in memory.
    for at in 1..=4 {
        writer.write(minute(at), batch(at, 8_000));
    }
    wait_for_samples(&path, 4);
    let other = rusqlite::Connection::open(&path).unwrap();
    let is_done = |_: &rusqlite::Row<'_>| Ok(());
    other
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], is_done)
        .unwrap();
    drop(other);
    let size = fs::metadata(&path).unwrap().len();
    let damage = vec![0xAA; usize::try_from(size - 4096).unwrap()];
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&damage, 4096).unwrap();
    writer.write(minute(5), batch(5, 8_000));
    let found = wait_for_samples(&path, 1);
    assert_eq!(found.samples[0].at, minute(5));
    drop(writer);
    let names = fs::read_dir(dir.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let aside = names.filter(|name| name.starts_with("history.db.damaged-"));
    assert!(aside.count() > 0);
    let losses = &read_history(&path, "web", None).unwrap()[0].losses;
    assert!(
        losses[0].why.contains("damaged and set aside"),
        "{losses:?}"
    );
}

#[test]
fn a_file_that_is_removed_while_it_is_written_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let writer = writer(&path);
    writer.write(minute(1), batch(1, 1));
    wait_for_samples(&path, 1);
    assert!(writer.take_begun_anew().is_empty());
    for entry in fs::read_dir(dir.path()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    writer.write(minute(2), batch(2, 1));
    let found = wait_for_samples(&path, 1);
    assert_eq!(found.samples[0].at, minute(2));
    let told = testkit::wait_for("the reason", || writer.take_begun_anew().pop());
    assert!(told.contains("removed or replaced"), "{told}");
    drop(writer);
    let found = &read_history(&path, "web", None).unwrap()[0];
    assert_eq!(found.service, web());
    assert!(
        found.losses[0].why.contains("removed or replaced"),
        "{:?}",
        found.losses
    );
}
