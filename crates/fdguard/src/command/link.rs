//! What a descriptor was that nobody saw: by its link, and by the call that opened it.

use std::fs::FileType;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use fdguard_core::{Class, Text};

/// By what its link in `/proc` said: `pipe:[7]`, `anon_inode:[eventfd]`, a path. The class is absent where only the process could
/// have told: the kind of a socket.
pub(in crate::command) fn of_link(link: &[u8]) -> (Option<Class>, Text) {
    let target = Text::from(link);
    let text = String::from_utf8_lossy(link);
    if let Some(name) = text.strip_prefix("anon_inode:") {
        let name = name.trim_matches(['[', ']']);
        return (Some(anonymous(name)), target);
    }
    let class = match () {
        () if text.starts_with("pipe:[") => Some(Class::Pipe),
        () if text.starts_with("socket:[") => None,
        () if text.starts_with("/memfd:") => Some(Class::Memfd),
        () if text.ends_with(" (deleted)") => Some(Class::Deleted),
        () if text.starts_with("/dev/pts/") => Some(Class::Tty),
        () if text.ends_with("/ptmx") => Some(Class::PtyMaster),
        () if text.starts_with('/') => of_path(link),
        () => None,
    };
    (class, target)
}

fn anonymous(name: &str) -> Class {
    match name {
        "eventpoll" => Class::Eventpoll,
        "eventfd" => Class::Eventfd,
        "timerfd" => Class::Timerfd,
        "signalfd" => Class::Signalfd,
        "inotify" | "inotify]" => Class::Inotify,
        "fanotify" => Class::Fanotify,
        "pidfd" => Class::Pidfd,
        "io_uring" => Class::IoUring,
        "perf_event" => Class::PerfEvent,
        "bpf-map" => Class::BpfMap,
        "bpf-prog" => Class::BpfProg,
        "bpf_link" => Class::BpfLink,
        "userfaultfd" => Class::Userfaultfd,
        other => Class::Other(other.into()),
    }
}

/// By the file that is there now: the process is gone.
fn of_path(path: &[u8]) -> Option<Class> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let kind = path.symlink_metadata().ok()?.file_type();
    Some(of_kind(kind))
}

fn of_kind(kind: FileType) -> Class {
    if kind.is_dir() {
        Class::Directory
    } else if kind.is_char_device() {
        Class::Chardev
    } else if kind.is_block_device() {
        Class::Blockdev
    } else if kind.is_fifo() {
        Class::Fifo
    } else {
        Class::Regular
    }
}

/// By the call alone, where it leaves no choice.
pub(in crate::command) fn of_call(call: &str) -> Option<Class> {
    let class = match call {
        "pipe" | "popen" => Class::Pipe,
        "eventfd" => Class::Eventfd,
        "epoll_create" => Class::Eventpoll,
        "timerfd_create" => Class::Timerfd,
        "signalfd" => Class::Signalfd,
        "inotify_init" => Class::Inotify,
        "fanotify_init" => Class::Fanotify,
        "memfd_create" => Class::Memfd,
        "pidfd_open" => Class::Pidfd,
        "opendir" => Class::Directory,
        "posix_openpt" => Class::PtyMaster,
        "mkstemp" => Class::Regular,
        "tmpfile" => Class::Deleted,
        _ => return None,
    };
    Some(class)
}

#[cfg(test)]
mod tests {
    use fdguard_core::Class;

    use super::{of_call, of_link};

    #[test]
    fn a_link_tells_the_class_or_that_it_does_not() {
        let class = |link: &str| of_link(link.as_bytes()).0;
        assert_eq!(class("pipe:[12]"), Some(Class::Pipe));
        assert_eq!(class("socket:[12]"), None);
        assert_eq!(class("anon_inode:[eventfd]"), Some(Class::Eventfd));
        assert_eq!(class("anon_inode:inotify"), Some(Class::Inotify));
        assert_eq!(class("anon_inode:[new]"), Some(Class::Other("new".into())));
        assert_eq!(class("/tmp/x (deleted)"), Some(Class::Deleted));
        assert_eq!(class("/dev/null"), Some(Class::Chardev));
        assert_eq!(class("/proc"), Some(Class::Directory));
        assert_eq!(class("/no/such/file"), None);
    }

    #[test]
    fn a_call_tells_only_what_it_must() {
        assert_eq!(of_call("timerfd_create"), Some(Class::Timerfd));
        assert_eq!(of_call("open"), None);
        assert_eq!(of_call("socket"), None);
    }
}
