//! Replaces the damaged database with the healed copy.
//!
//! Leases on the old files are held meanwhile. A process that opens one of them for writing has to
//! wait, and the broken lease reveals it; everything is then restored before that process
//! continues. Old and new file are exchanged atomically, so a database exists at the path at every
//! moment, and a crash leaves one of the two.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, XattrFlags, renameat_with};

use super::backup::sync_dir;
use crate::Error;
use crate::holding::HolderRole;
use crate::lease::HeldLease;

/// Swaps the files, or returns why nothing was changed.
pub(super) fn swap(
    database: &Path,
    healed: &Path,
    dir: &Path,
    leases: &[(HolderRole, HeldLease)],
) -> Result<Result<(), String>, Error> {
    let failed = |error: io::Error| Error::io(database, "cannot install the healed copy as", error);
    if let Err(error) = dress(database, healed) {
        return Ok(Err(format!(
            "cannot preserve owner, mode or attributes: {error}"
        )));
    }
    exchange(healed, database).map_err(failed)?;
    if leases.iter().any(|(_, kept)| !kept.is_whole()) {
        exchange(healed, database).map_err(failed)?;
        return Ok(Err("a writer opened the database meanwhile".to_owned()));
    }
    for (role, kept) in leases.iter().filter(|(role, _)| *role != HolderRole::Main) {
        set_aside(&role.path(database), &role.path(&dir.join("old")), kept).map_err(failed)?;
    }
    let parent = database.parent().unwrap_or(Path::new("/"));
    sync_dir(parent).map_err(failed)?;
    Ok(Ok(()))
}

fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    match renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(()),
        // If a file system cannot exchange, the new file replaces the old one, of which there is a
        // backup.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => fs::rename(a, b),
        Err(error) => Err(error.into()),
    }
}

/// Moves a side file of the old database away. Its transactions are in the healed copy, so a side
/// file that has to stay does no harm.
fn set_aside(from: &Path, to: &Path, kept: &HeldLease) -> io::Result<()> {
    if !kept.is_whole() {
        return Ok(());
    }
    fs::rename(from, to)?;
    if !kept.is_whole() {
        // A process opened it in between and waits for the lease: it must be in place when that
        // process continues.
        fs::rename(to, from)?;
    }
    Ok(())
}

/// Gives the copy the owner, mode and attributes of the original.
fn dress(original: &Path, copy: &Path) -> io::Result<()> {
    let meta = original.metadata()?;
    let now = copy.metadata()?;
    if (now.uid(), now.gid()) != (meta.uid(), meta.gid()) {
        std::os::unix::fs::chown(copy, Some(meta.uid()), Some(meta.gid()))?;
    }
    fs::set_permissions(copy, fs::Permissions::from_mode(meta.mode() & 0o7777))?;
    attributes(original, copy)?;
    File::open(copy)?.sync_all()
}

fn attributes(original: &Path, copy: &Path) -> io::Result<()> {
    let mut names = vec![0; 1 << 16];
    let length = match rustix::fs::listxattr(original, &mut names[..]) {
        Ok(length) => length,
        // A file system without attributes has none to keep.
        Err(rustix::io::Errno::NOTSUP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut value = vec![0; 1 << 16];
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let read = rustix::fs::getxattr(original, name, &mut value[..])?;
        rustix::fs::setxattr(copy, name, &value[..read], XattrFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, OpenOptions};
    use std::io::Write as _;

    use super::swap;
    use crate::holding::HolderRole;
    use crate::lease::HeldLease;

    #[test]
    fn who_comes_to_write_meanwhile_gets_the_file_that_is_at_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let [database, healed] = ["state.db", "healed"].map(|name| dir.path().join(name));
        fs::write(&database, "old").unwrap();
        fs::write(&healed, "new").unwrap();
        let kept = HeldLease::acquire(File::open(&database).unwrap()).unwrap();
        let path = database.clone();
        let newcomer = std::thread::spawn(move || {
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(b" and more").unwrap();
        });
        while kept.is_whole() {
            std::thread::yield_now();
        }
        let leases = [(HolderRole::Main, kept)];
        let said = swap(&database, &healed, dir.path(), &leases).unwrap();
        assert_eq!(
            said,
            Err("a writer opened the database meanwhile".to_owned())
        );
        drop(leases);
        newcomer.join().unwrap();
        assert_eq!(fs::read_to_string(&database).unwrap(), "old and more");
    }

    #[test]
    fn old_side_files_go_with_the_old_database() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        fs::create_dir(&work).unwrap();
        let database = dir.path().join("state.db");
        let healed = work.join("database");
        fs::write(&database, "old").unwrap();
        fs::write(&healed, "new").unwrap();
        fs::write(HolderRole::Wal.path(&database), "log").unwrap();
        let leases: Vec<_> = [HolderRole::Main, HolderRole::Wal]
            .into_iter()
            .map(|role| {
                (
                    role,
                    HeldLease::acquire(File::open(role.path(&database)).unwrap()).unwrap(),
                )
            })
            .collect();
        assert_eq!(swap(&database, &healed, &work, &leases).unwrap(), Ok(()));
        assert_eq!(fs::read_to_string(&database).unwrap(), "new");
        assert!(!HolderRole::Wal.path(&database).exists());
    }
}
