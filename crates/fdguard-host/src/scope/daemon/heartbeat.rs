//! Heartbeat file: the time in seconds since 1970 at which the daemon was last alive, replaced
//! atomically.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A heartbeat that is older is of a daemon that hangs or is gone.
pub const STALE_AFTER: Duration = Duration::from_secs(120);

/// State of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The daemon runs; the age of its last beat.
    Fresh(Duration),
    /// The daemon has stopped; the age of its last beat.
    Stale(Duration),
    /// There is no file: no daemon runs, or it shut down cleanly.
    Absent,
    /// The file is not a heartbeat or cannot be read.
    Unreadable,
}

/// Writes it.
pub fn write(path: &Path, now: SystemTime) -> io::Result<()> {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let mut file = File::create(&new)?;
    writeln!(file, "{seconds}")?;
    // Not synced: after a crash of the machine no daemon runs, whatever the file says.
    drop(file);
    fs::rename(&new, path)
}

/// Reads and judges it.
#[must_use]
pub fn check(path: &Path, now: SystemTime, stale_after: Duration) -> Beat {
    match fs::read_to_string(path) {
        Ok(text) => judge(&text, now, stale_after),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Beat::Absent,
        Err(_) => Beat::Unreadable,
    }
}

/// Whether a daemon that should run does not: stale, absent, or unreadable.
#[must_use]
pub fn is_stale(path: &Path) -> bool {
    !matches!(check(path, SystemTime::now(), STALE_AFTER), Beat::Fresh(_))
}

fn judge(text: &str, now: SystemTime, stale_after: Duration) -> Beat {
    let seconds = text.trim().parse::<u64>().ok();
    let then = seconds.and_then(|it| UNIX_EPOCH.checked_add(Duration::from_secs(it)));
    let Some(then) = then else {
        return Beat::Unreadable;
    };
    // One from the future is of a clock that was set back: it beat at least once since.
    match now.duration_since(then).unwrap_or_default() {
        age if age >= stale_after => Beat::Stale(age),
        age => Beat::Fresh(age),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r52_stale_after_two_minutes() {
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        let at = |text| judge(text, now, STALE_AFTER);
        assert_eq!(at("1000\n"), Beat::Fresh(Duration::ZERO));
        assert_eq!(at("881"), Beat::Fresh(Duration::from_secs(119)));
        assert_eq!(at("880"), Beat::Stale(Duration::from_secs(120)));
        assert_eq!(at("2000"), Beat::Fresh(Duration::ZERO));
        assert_eq!(at(""), Beat::Unreadable);
        assert_eq!(at("12x"), Beat::Unreadable);
        assert_eq!(at("99999999999999999999"), Beat::Unreadable);
    }

    #[test]
    fn what_is_written_is_read_again_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("heartbeat");
        assert_eq!(check(&path, SystemTime::now(), STALE_AFTER), Beat::Absent);
        assert!(is_stale(&path));
        write(&path, SystemTime::now()).unwrap();
        assert!(!is_stale(&path));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
