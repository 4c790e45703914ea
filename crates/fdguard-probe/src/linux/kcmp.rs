//! Whether descriptors of two processes refer to the same open file, by the kernel's own order of
//! them.
#![expect(unsafe_code, reason = "rustix has no kcmp")]

use std::cmp::Ordering;

use fdguard_core::FdHolder;

const KCMP_FILE: libc::c_int = 0;

/// The order of two open files: equal ones are the same. `None` if the kernel refuses, or if one of
/// the numbers is closed.
pub(super) fn compare(one: FdHolder, other: FdHolder) -> Option<Ordering> {
    // SAFETY: the call takes numbers only and writes nowhere.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            one.pid,
            other.pid,
            KCMP_FILE,
            libc::c_ulong::from(one.fd),
            libc::c_ulong::from(other.fd),
        )
    };
    match answer {
        0 => Some(Ordering::Equal),
        1 => Some(Ordering::Less),
        2 => Some(Ordering::Greater),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;
    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    use fdguard_core::FdHolder;

    #[test]
    fn a_duplicate_is_the_same_open_file_and_a_second_opening_is_not() {
        let of = |file: &File| FdHolder {
            pid: std::process::id(),
            fd: file.as_raw_fd().unsigned_abs(),
            writes: None,
        };
        let one = File::open("/dev/null").unwrap();
        let (duplicate, second) = (one.try_clone().unwrap(), File::open("/dev/null").unwrap());
        let Some(answer) = super::compare(of(&one), of(&duplicate)) else {
            return testkit::skip("the kernel has no kcmp");
        };
        assert_eq!(answer, Ordering::Equal);
        let order = super::compare(of(&one), of(&second)).unwrap();
        assert_ne!(order, Ordering::Equal);
        assert_eq!(super::compare(of(&second), of(&one)), Some(order.reverse()));
        let closed = FdHolder {
            fd: 1 << 20,
            ..of(&one)
        };
        assert_eq!(super::compare(of(&one), closed), None);
    }
}
