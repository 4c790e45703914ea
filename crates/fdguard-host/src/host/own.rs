//! Resource usage of the host process itself.

use std::fs;

use fdguard_proc::process;
use fdguard_proc::status::number_of;

/// Open descriptors of the host. Counting needs no descriptor, so it works with a full table;
/// before Linux 6.2 they are listed.
pub(super) fn count() -> Option<u64> {
    match fs::metadata("/proc/self/fd").ok()?.len() {
        0 => listed().map(|(count, _)| count),
        count => Some(count),
    }
}

/// The highest number in use; `None` if they cannot be listed.
pub(super) fn highest() -> Option<u64> {
    listed().and_then(|(_, highest)| highest)
}

/// The number of descriptors and the highest one, without the one that lists them.
fn listed() -> Option<(u64, Option<u64>)> {
    let directory = fs::File::open("/proc/self/fd").ok()?;
    let ours = {
        use std::os::fd::AsRawFd as _;
        u64::try_from(directory.as_raw_fd()).ok()
    };
    let mut numbers = Vec::new();
    let dir = rustix::fs::Dir::new(directory).ok()?;
    for entry in dir {
        let entry = entry.ok()?;
        let number = entry.file_name().to_str().ok()?.parse::<u64>();
        numbers.extend(number.ok().filter(|number| Some(*number) != ours));
    }
    let count = u64::try_from(numbers.len()).ok()?;
    Some((count, numbers.into_iter().max()))
}

/// Threads of the host.
pub(super) fn threads() -> Option<u64> {
    number_of(&fs::read("/proc/self/status").ok()?, b"Threads")
}

/// The number of the host's children, and how many of them are zombies.
pub(super) fn children() -> Option<(u64, u64)> {
    let children = process::children(std::process::id());
    let zombies = children.iter().filter(|pid| is_zombie(**pid)).count();
    Some((
        u64::try_from(children.len()).ok()?,
        u64::try_from(zombies).ok()?,
    ))
}

fn is_zombie(pid: u32) -> bool {
    process::stat(pid, |stat| stat.is_zombie()).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_count_is_of_real_descriptors_and_without_our_own_look() {
        let before = count().unwrap();
        assert_eq!(listed().map(|(count, _)| count), Some(before));
        let file = fs::File::open("/dev/null").unwrap();
        let high = rustix::io::fcntl_dupfd_cloexec(&file, 500).unwrap();
        assert_eq!(count(), Some(before + 2));
        assert_eq!(highest(), Some(500));
        drop((file, high));
        assert_eq!(count(), Some(before));
    }

    #[test]
    fn a_child_that_nobody_waited_for_is_seen() {
        let (children_before, zombies_before) = children().unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        let ended = || is_zombie(child.id());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !ended() {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
        let seen = children().unwrap();
        assert_eq!(seen, (children_before + 1, zombies_before + 1));
        child.wait().unwrap();
        assert_eq!(children(), Some((children_before, zombies_before)));
    }
}
