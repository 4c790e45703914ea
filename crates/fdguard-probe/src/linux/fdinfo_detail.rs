//! The model's view of an fdinfo file: access mode, flags, and the details of each kind of file.

use fdguard_core::detail::{Eventfd, FileLock, IoUring, Timerfd, WatchedInode};
use fdguard_core::{Mode, OpenFlags};
use fdguard_proc::ascii::{decimal, hexadecimal, split_at_byte};
use fdguard_proc::fdinfo::Fdinfo;

const O_ACCMODE: u64 = 0o3;
const O_PATH: u64 = 0o10_000_000;

/// The access mode.
#[must_use]
pub fn mode(info: &Fdinfo<'_>) -> Option<Mode> {
    let flags = info.flags?;
    if flags & O_PATH != 0 {
        return Some(Mode::Path);
    }
    match flags & O_ACCMODE {
        0 => Some(Mode::Read),
        1 => Some(Mode::Write),
        2 => Some(Mode::ReadWrite),
        _ => None,
    }
}

/// Its other flags, with the values that most architectures use.
pub(super) fn open_flags(info: &Fdinfo<'_>) -> Option<OpenFlags> {
    let bits = u32::try_from(info.flags?).ok()?;
    Some(OpenFlags::from_bits(common_bits(bits)))
}

/// What an inotify descriptor watches.
pub(crate) fn watched(info: &Fdinfo<'_>) -> Vec<WatchedInode> {
    let inode = |((major, minor), ino)| WatchedInode {
        ino,
        dev: format!("{major}:{minor}"),
    };
    info.watched().map(inode).collect()
}

/// Its locks and leases.
pub(super) fn locks(info: &Fdinfo<'_>) -> Vec<FileLock> {
    let lock = |held: fdguard_proc::locks::HeldLock| FileLock {
        kind: held.kind,
        access: held.access,
        start: held.start,
        end: held.end,
    };
    info.locks().map(lock).collect()
}

/// Fields of an eventfd.
pub(crate) fn eventfd(info: &Fdinfo<'_>) -> Eventfd {
    Eventfd {
        // The kernel prints the count in hexadecimal.
        count: info.field(b"eventfd-count").and_then(hexadecimal),
        id: info.number(b"eventfd-id"),
        semaphore: info.number(b"eventfd-semaphore").map(|value| value != 0),
    }
}

/// Fields of a timer.
pub(crate) fn timerfd(info: &Fdinfo<'_>) -> Timerfd {
    Timerfd {
        clock: info.number(b"clockid").map(clock_name),
        ticks: info.number(b"ticks"),
        remaining: info.field(b"it_value").and_then(seconds),
        interval: info.field(b"it_interval").and_then(seconds),
    }
}

/// Registered files and buffers of an io_uring.
pub(crate) fn io_uring(info: &Fdinfo<'_>) -> IoUring {
    IoUring {
        files: info.number(b"UserFiles"),
        buffers: info.number(b"UserBufs"),
    }
}

/// An architecture's own values for some flags are mapped to the common ones.
#[cfg(any(
    target_arch = "arm",
    target_arch = "aarch64",
    target_arch = "powerpc64"
))]
fn common_bits(bits: u32) -> u32 {
    const SWAPPED: [(u32, u32); 4] = [
        (0o40_000, 0o200_000),
        (0o100_000, 0o400_000),
        (0o200_000, 0o40_000),
        (0o400_000, 0o100_000),
    ];
    let kept = bits & !0o740_000;
    SWAPPED
        .iter()
        .filter(|(here, _)| bits & here != 0)
        .fold(kept, |sum, (_, common)| sum | common)
}

#[cfg(not(any(
    target_arch = "arm",
    target_arch = "aarch64",
    target_arch = "powerpc64"
)))]
fn common_bits(bits: u32) -> u32 {
    bits
}

/// `(86399, 123456789)`: seconds and nanoseconds.
fn seconds(value: &[u8]) -> Option<f64> {
    let inner = value.strip_prefix(b"(")?.strip_suffix(b")")?;
    let (whole, nanos) = split_at_byte(inner, b',')?;
    #[expect(clippy::cast_precision_loss, reason = "seconds for people")]
    Some(decimal(whole)? as f64 + decimal(nanos)? as f64 / 1e9)
}

/// The name of a clock.
pub(super) fn clock_name(number: u64) -> String {
    match number {
        0 => "realtime".to_owned(),
        1 => "monotonic".to_owned(),
        7 => "boottime".to_owned(),
        8 => "realtime-alarm".to_owned(),
        9 => "boottime-alarm".to_owned(),
        other => format!("clock {other}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_kind_tells_its_own() {
        let info = Fdinfo::parse(
            b"pos:\t64\nflags:\t02100001\nlock:\t2: FLOCK  ADVISORY  READ 2038 fe:00:99 5 9\n",
        );
        assert_eq!(mode(&info), Some(Mode::Write));
        assert_eq!(locks(&info)[0].end, Some(9));
        let eventfd = eventfd(&Fdinfo::parse(b"pos:\t0\nflags:\t02\neventfd-count:               1f\neventfd-id: 7\neventfd-semaphore: 1\n"));
        assert_eq!(
            (eventfd.count, eventfd.id, eventfd.semaphore),
            (Some(31), Some(7), Some(true))
        );
        let timer = timerfd(&Fdinfo::parse(b"clockid: 1\nticks: 2\nsettime flags: 00\nit_value: (86399, 500000000)\nit_interval: (0, 0)\n"));
        assert_eq!(
            (timer.clock.as_deref(), timer.remaining),
            (Some("monotonic"), Some(86399.5))
        );
        let ring = Fdinfo::parse(b"UserFiles:\t4\nUserBufs:\t0\n");
        assert_eq!(io_uring(&ring).files, Some(4));
    }

    #[test]
    fn watched_files_and_flags_have_names() {
        let info = Fdinfo::parse(
            b"pos:\t0\nflags:\t02004000\ninotify wd:2 ino:9e7e sdev:800013 mask:800afce\n",
        );
        assert_eq!(
            (watched(&info)[0].ino, &*watched(&info)[0].dev),
            (0x9e7e, "8:19")
        );
        let names: Vec<_> = open_flags(&info).unwrap().names().collect();
        assert_eq!(names, ["nonblock"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let info = Fdinfo::parse(&bytes);
            drop((mode(&info), open_flags(&info), watched(&info), locks(&info)));
            let _ = (eventfd(&info), io_uring(&info));
            let timer = timerfd(&info);
            prop_assert!(timer.remaining.is_none_or(f64::is_finite));
        }
    }
}
