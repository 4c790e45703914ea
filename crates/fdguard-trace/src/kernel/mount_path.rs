//! Finds a file that the kernel names by its path on its own file system.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fdguard_kernel::MappedFile;
use fdguard_proc::mountinfo::{mounts, unescaped};

/// Where it can be opened: below `/`, or below the place where its file system is mounted. Its
/// inode proves that it is the same file.
pub(super) fn locate(file: &MappedFile) -> Option<PathBuf> {
    let own = OsStr::from_bytes(file.path.strip_prefix(b"/")?);
    let is_it = |path: &PathBuf| {
        let meta = path.metadata();
        meta.is_ok_and(|meta| meta.is_file() && meta.ino() == file.inode)
    };
    let first = Some(Path::new("/").join(own)).filter(is_it);
    first.or_else(|| {
        let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
        mount_points(&mounts)
            .map(|point| point.join(own))
            .find(is_it)
    })
}

fn mount_points(mountinfo: &[u8]) -> impl Iterator<Item = PathBuf> {
    let places = mounts(mountinfo).map(|mount| unescaped(mount.place));
    places.map(|place| OsString::from_vec(place).into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use fdguard_kernel::MappedFile;

    use super::{locate, mount_points};

    #[test]
    fn a_file_is_found_and_another_one_with_its_name_is_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut mapped = MappedFile {
            inode: file.as_file().metadata().unwrap().ino(),
            path: file.path().as_os_str().as_bytes().to_vec(),
            ..MappedFile::default()
        };
        assert_eq!(locate(&mapped).as_deref(), Some(file.path()));
        mapped.inode += 1;
        assert_eq!(locate(&mapped), None);
    }

    #[test]
    fn a_mount_whose_name_has_a_blank_is_searched_too() {
        let text = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n\
            37 35 98:1 / /media/my\\040disk rw - ext4 /dev/sdb1 rw\n";
        let points: Vec<_> = mount_points(text).collect();
        assert_eq!(points, [Path::new("/mnt2"), Path::new("/media/my disk")]);
    }
}
