//! Directories of finished traces. A program that outlives its trace keeps the directory, because
//! every program it starts loads the library from there. The next trace removes directories whose
//! programs are all gone.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

/// The prefix of the names of directories.
pub(crate) const PREFIX: &str = "fdguard-trace-";
/// The file that records in which namespace the processes of a directory are visible.
const NAMESPACE: &str = "namespace";

/// Marks a new directory as used, for as long as the file is open. Written last, so that a
/// directory without the mark is left alone.
pub(crate) fn claim(dir: &Path) -> io::Result<File> {
    let lock = open(dir)?;
    claim_open(&lock)?;
    Ok(lock)
}

/// The same for a directory that is already open.
pub(crate) fn claim_open(dir: &File) -> io::Result<()> {
    flock(dir, FlockOperation::LockShared)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, NAMESPACE, flags, Mode::RUSR | Mode::WUSR)?;
    File::from(file).write_all(namespace()?.as_os_str().as_bytes())
}

/// Whether the fdguard that claimed the directory is still running.
pub(crate) fn is_claimed(dir: &Path) -> bool {
    let free = open(dir).and_then(|lock| {
        let taken = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        Ok(taken?)
    });
    free.is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
}

fn open(dir: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?.into())
}

/// Processes of another namespace are not visible from here.
fn namespace() -> io::Result<std::path::PathBuf> {
    fs::read_link("/proc/self/ns/pid")
}

/// Removes abandoned directories of this user. In case of doubt a directory stays.
pub(crate) fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_named = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes());
        if is_named && is_abandoned(&entry.path()).unwrap_or(false) {
            // Another process may be removing it as well.
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

fn is_abandoned(dir: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(dir)?;
    let user = rustix::process::geteuid();
    // Directories for attached processes belong to the users of those.
    let is_ours = found.is_dir()
        && (found.uid() == user.as_raw() || user.is_root())
        && found.permissions().mode() & 0o777 == 0o700;
    if !is_ours || fs::read(dir.join(NAMESPACE))? != namespace()?.as_os_str().as_bytes() {
        return Ok(false);
    }
    let lock = open(dir)?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        // Its trace is still running.
        return Ok(false);
    }
    Ok(!is_used(dir)?)
}

/// Whether a living process has the library, or would make its children load it.
fn is_used(dir: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(dir)?.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.split_once('-'));
        if let Some((pid, _)) = pid.filter(|(pid, _)| pid.parse::<u32>().is_ok())
            && may_name(Path::new("/proc").join(pid).join("maps").as_path(), dir)
        {
            return Ok(true);
        }
    }
    for entry in fs::read_dir("/proc")?.flatten() {
        let is_process = entry.file_name().as_bytes().iter().all(u8::is_ascii_digit);
        // If the environment cannot be read, the process belongs to another user, or is in the list
        // above.
        if is_process
            && has(
                &fs::read(entry.path().join("environ")).unwrap_or_default(),
                dir,
            )
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a process's file names the directory. An unreadable one might; one that is gone does
/// not.
fn may_name(file: &Path, dir: &Path) -> bool {
    match fs::read(file) {
        Ok(text) => has(&text, dir),
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

fn has(text: &[u8], dir: &Path) -> bool {
    let name = dir.as_os_str().as_bytes();
    text.windows(name.len()).any(|part| part == name)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    use super::{NAMESPACE, PREFIX, claim, sweep};

    fn dir(parent: &tempfile::TempDir, name: &str) -> PathBuf {
        let path = parent.path().join(format!("{PREFIX}{name}"));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    #[test]
    fn what_nobody_uses_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let [gone, unmarked, running, wide, elsewhere] =
            ["gone", "unmarked", "running", "wide", "elsewhere"].map(|name| dir(&parent, name));
        let other = parent.path().join("fdguard-other");
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, parent.path().join(format!("{PREFIX}link"))).unwrap();
        let running_claim = claim(&running).unwrap();
        for one in [&gone, &wide, &elsewhere] {
            drop(claim(one).unwrap());
        }
        // No process has this pid.
        fs::write(gone.join("4194305-12.fdguard"), "").unwrap();
        fs::set_permissions(&wide, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(elsewhere.join(NAMESPACE), "pid:[1]").unwrap();
        sweep(parent.path());
        assert!(!gone.exists());
        for one in [&unmarked, &running, &wide, &elsewhere, &other] {
            assert!(one.exists(), "{}", one.display());
        }
        drop(running_claim);
        sweep(parent.path());
        assert!(!running.exists());
    }

    #[test]
    fn a_process_that_would_load_the_library_keeps_the_dir() {
        let parent = tempfile::tempdir().unwrap();
        let used = dir(&parent, "used");
        drop(claim(&used).unwrap());
        let mut child = Command::new("cat")
            .env("FDGUARD_TRACE_DIR", &used)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // The environment of a process is empty for an instant after its exec.
        let environment = format!("/proc/{}/environ", child.id());
        while fs::read(&environment).unwrap().is_empty() {
            std::thread::yield_now();
        }
        sweep(parent.path());
        assert!(used.exists());
        drop(child.stdin.take());
        child.wait().unwrap();
        sweep(parent.path());
        assert!(!used.exists());
    }
}
