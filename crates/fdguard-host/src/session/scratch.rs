//! Directories for short-lived small files. A missing or full temporary directory is not a failure.

use std::path::PathBuf;

/// Alternative directories for such files.
const ELSEWHERE: [&str; 4] = ["/dev/shm", "/run", "/tmp", "/var/tmp"];

/// The directories, those that were configured first.
pub(crate) fn dirs() -> Vec<PathBuf> {
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let given = given.filter(|dir| dir.is_absolute());
    let all = [std::env::temp_dir()].into_iter().chain(given);
    let mut dirs: Vec<PathBuf> = all.chain(ELSEWHERE.map(PathBuf::from)).collect();
    // `/tmp` is often the first one, too.
    let mut seen = std::collections::BTreeSet::new();
    dirs.retain(|dir| seen.insert(dir.clone()));
    dirs
}
