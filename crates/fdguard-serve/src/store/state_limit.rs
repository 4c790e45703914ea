//! What is beside the history counts, too: damaged files that were set aside, bundles of evidence,
//! traces. When all of it is too much, the oldest of these files go.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Directories beside the history.
const DIRS: [&str; 2] = ["evidence", "traces"];

/// The part of the limit that the history may use.
pub(super) fn of_history(max_disk: u64) -> u64 {
    max_disk / 4 * 3
}

/// Removes the oldest files beside the history until all of them fit. They always have the part of
/// the limit that the history may not use.
pub(super) fn remove_beyond(history: &Path, max_disk: u64, history_bytes: u64) {
    let mut left = max_disk.saturating_sub(history_bytes.min(of_history(max_disk)));
    let mut files = files_beside(history);
    files.sort();
    for (_, size, path) in files.into_iter().rev() {
        match left.checked_sub(size) {
            Some(rest) => left = rest,
            // This one and all that are older. What cannot be removed is tried again later.
            None => {
                left = 0;
                drop(fs::remove_file(path));
            }
        }
    }
}

/// The time of the last change, the size and the path of each.
fn files_beside(history: &Path) -> Vec<(SystemTime, u64, PathBuf)> {
    let Some((dir, name)) = history.parent().zip(history.file_name()) else {
        return Vec::new();
    };
    let damaged = format!("{}.damaged-", name.to_string_lossy());
    let is_damaged = |path: &Path| {
        let name = path.file_name().map(|name| name.to_string_lossy());
        name.is_some_and(|name| name.starts_with(&damaged))
    };
    let mut paths = paths_in(dir);
    paths.retain(|path| is_damaged(path));
    paths.extend(DIRS.iter().flat_map(|one| paths_in(&dir.join(one))));
    let with_size = |path: PathBuf| {
        let stat = fs::symlink_metadata(&path).ok()?;
        let file = (stat.modified().ok()?, stat.len(), path);
        stat.is_file().then_some(file)
    };
    paths.into_iter().filter_map(with_size).collect()
}

/// None if the directory cannot be listed.
fn paths_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::{Duration, SystemTime};

    use super::remove_beyond;

    #[test]
    fn the_oldest_files_beside_the_history_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let names = [
            "history.db",
            "notes.txt",
            "history.db.damaged-1",
            "evidence/a.tar.zst",
            "traces/pid-7.json",
            "history.db.damaged-2",
        ];
        for (age, name) in names.iter().rev().enumerate() {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, [0; 1000]).unwrap();
            let age = Duration::from_secs(60 * age as u64);
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        }
        let left = |max_disk, history_bytes| {
            remove_beyond(&dir.path().join("history.db"), max_disk, history_bytes);
            let is_left = |name: &&&str| dir.path().join(name).exists();
            names.iter().filter(is_left).count()
        };
        assert_eq!(left(5_000, 1_000), 6);
        assert_eq!(left(4_500, 1_000), 5);
        assert!(!dir.path().join("history.db.damaged-1").exists());
        // A quarter is theirs, whatever the history has.
        assert_eq!(left(8_000, 1 << 20), 4);
        assert_eq!(left(0, 0), 2);
    }
}
