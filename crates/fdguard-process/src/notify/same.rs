//! Whether two descriptors refer to the same open file.
#![expect(unsafe_code, reason = "rustix has neither kcmp nor F_DUPFD_QUERY")]

use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Since Linux 6.10: whether two numbers are the same open file.
const F_DUPFD_QUERY: libc::c_int = 1024 + 3;
const KCMP_FILE: libc::c_int = 0;

/// Whether both are the same open file (including offset, locks and flags), not only the same
/// inode. If the kernel cannot compare them, sockets are compared by inode and everything else
/// counts as different: keeping a duplicate costs one number, merging two different files loses
/// one.
pub(super) fn is_same_file(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    by_query(one, other)
        .or_else(|| by_kcmp(one, other))
        .unwrap_or_else(|| by_socket(one, other))
}

fn by_query(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Option<bool> {
    // SAFETY: both numbers are open as long as the borrows live, and this command only compares.
    let answer = unsafe { libc::fcntl(one.as_raw_fd(), F_DUPFD_QUERY, other.as_raw_fd()) };
    (answer >= 0).then_some(answer == 1)
}

fn by_kcmp(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Option<bool> {
    let own = std::process::id();
    // SAFETY: the call takes numbers only and writes nowhere.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            own,
            own,
            KCMP_FILE,
            one.as_raw_fd(),
            other.as_raw_fd(),
        )
    };
    (answer >= 0).then_some(answer == 0)
}

fn by_socket(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let stat = |fd| rustix::fs::fstat(fd).ok();
    let (Some(one), Some(other)) = (stat(one), stat(other)) else {
        return false;
    };
    let is_socket = rustix::fs::FileType::from_raw_mode(one.st_mode).is_socket();
    is_socket && (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;

    use super::{by_kcmp, by_query, by_socket, is_same_file};

    type Way = fn(BorrowedFd<'_>, BorrowedFd<'_>) -> Option<bool>;

    #[test]
    fn a_duplicate_is_the_same_and_a_second_opening_is_not() {
        let one = File::open("/dev/null").unwrap();
        let duplicate = one.try_clone().unwrap();
        let second = File::open("/dev/null").unwrap();
        assert!(is_same_file(one.as_fd(), duplicate.as_fd()));
        assert!(!is_same_file(one.as_fd(), second.as_fd()));
        let ways: [Way; 2] = [by_query, by_kcmp];
        for way in ways {
            // All methods that this kernel offers agree.
            assert_ne!(way(one.as_fd(), duplicate.as_fd()), Some(false));
            assert_ne!(way(one.as_fd(), second.as_fd()), Some(true));
        }
    }

    #[test]
    fn without_help_of_the_kernel_only_sockets_are_known_by_their_inode() {
        let (a, b) = UnixStream::pair().unwrap();
        let duplicate = a.try_clone().unwrap();
        assert!(by_socket(a.as_fd(), duplicate.as_fd()));
        assert!(!by_socket(a.as_fd(), b.as_fd()));
        let file = File::open("/dev/null").unwrap();
        assert!(!by_socket(file.as_fd(), file.as_fd()));
    }
}
