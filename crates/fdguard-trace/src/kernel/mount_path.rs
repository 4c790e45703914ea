//! Finds a file that the kernel names by its path on its own file system.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fdguard_kernel::MappedFile;

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
        let points = mounts.split(|byte| *byte == b'\n').filter_map(mount_point);
        points.map(|point| point.join(own)).find(is_it)
    })
}

/// The fifth word of a line. Names with blanks, which are escaped, are not searched.
fn mount_point(line: &[u8]) -> Option<&Path> {
    let word = line.split(|byte| *byte == b' ').nth(4)?;
    Some(Path::new(OsStr::from_bytes(word)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::MetadataExt as _;

    use fdguard_kernel::MappedFile;

    use super::{locate, mount_point};

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
    fn a_mount_has_its_place_in_the_fifth_word() {
        let line = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(mount_point(line).unwrap().to_str(), Some("/mnt2"));
        assert_eq!(mount_point(b""), None);
    }
}
