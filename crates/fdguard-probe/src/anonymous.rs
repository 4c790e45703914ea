//! The kinds of anonymous inodes: one line each, pure.

use fdguard_core::detail::{Eventpoll, OtherDetail, Pidfd, Signalfd, WatcherDetail};
use fdguard_core::{Class, Detail, Text};

use fdguard_proc::fdinfo::{Fdinfo, PidfdTarget};

use crate::linux::fdinfo_detail;

/// One kind of anonymous inode.
struct AnonymousKind {
    class: Class,
    /// The kernel's names for it, without brackets: one of them, or two where versions differ.
    names: &'static [&'static str],
    /// How its fdinfo begins after the lines that every descriptor has.
    line: Line,
    detail: fn(&Fdinfo<'_>) -> Detail,
}

/// The first line of its own in an fdinfo.
enum Line {
    /// There is none that no other kind has.
    None,
    Always(&'static [u8]),
    /// Only if something is registered.
    Sometimes(&'static [u8]),
}

impl Line {
    fn begins(&self, info: &Fdinfo<'_>) -> bool {
        match self {
            Self::None => false,
            Self::Always(line) | Self::Sometimes(line) => info.rest.starts_with(line),
        }
    }
}

const fn kind(
    class: Class,
    names: &'static [&'static str],
    line: Line,
    detail: fn(&Fdinfo<'_>) -> Detail,
) -> AnonymousKind {
    AnonymousKind {
        class,
        names,
        line,
        detail,
    }
}

#[rustfmt::skip]
static KINDS: &[AnonymousKind] = &[
    kind(Class::Eventfd, &["eventfd"], Line::Always(b"eventfd-count:"), eventfd),
    kind(Class::Eventpoll, &["eventpoll"], Line::Sometimes(b"tfd:"), eventpoll),
    kind(Class::Timerfd, &["timerfd"], Line::Always(b"clockid:"), timerfd),
    kind(Class::Signalfd, &["signalfd"], Line::Always(b"sigmask:"), signalfd),
    kind(Class::Pidfd, &["pidfd"], Line::Always(b"Pid:"), pidfd),
    kind(Class::Inotify, &["inotify"], Line::Sometimes(b"inotify wd:"), watcher),
    kind(Class::Fanotify, &["fanotify"], Line::None, watcher),
    kind(Class::IoUring, &["io_uring"], Line::None, io_uring),
    kind(Class::PerfEvent, &["perf_event"], Line::None, fields),
    kind(Class::BpfMap, &["bpf-map"], Line::None, fields),
    kind(Class::BpfProg, &["bpf-prog"], Line::None, fields),
    kind(Class::BpfLink, &["bpf_link", "bpf-link"], Line::None, fields),
    kind(Class::Userfaultfd, &["userfaultfd"], Line::None, fields),
];

/// The class by the kernel's name, with or without brackets.
#[must_use]
pub fn class_by_name(name: &[u8]) -> Option<Class> {
    let inner = name.strip_prefix(b"[").and_then(|it| it.strip_suffix(b"]"));
    let bare = inner.unwrap_or(name);
    let found = |kind: &&AnonymousKind| kind.names.iter().any(|name| name.as_bytes() == bare);
    KINDS.iter().find(found).map(|kind| kind.class.clone())
}

/// The class of an anonymous inode on Linux; a kind without a class keeps its raw name.
pub(crate) fn class_of(name: &[u8]) -> Class {
    class_by_name(name).unwrap_or_else(|| Class::Other(String::from_utf8_lossy(name).into()))
}

/// The class, if the first line after the common ones reveals it, so that the link need not be
/// read.
pub(crate) fn class_by_info(info: &Fdinfo<'_>) -> Option<Class> {
    let found = KINDS.iter().find(|kind| kind.line.begins(info));
    found.map(|kind| kind.class.clone())
}

/// Whether fdinfo can belong to this class: a number that was reused between two reads shows here.
pub(crate) fn agrees(class: &Class, info: &Fdinfo<'_>) -> bool {
    match kind_of(class).map(|kind| &kind.line) {
        Some(Line::Always(line)) => info.rest.starts_with(line),
        Some(Line::Sometimes(line)) => info.rest.is_empty() || info.rest.starts_with(line),
        Some(Line::None) | None => !KINDS.iter().any(|kind| kind.line.begins(info)),
    }
}

/// What fdinfo shows about one of this class.
pub(crate) fn detail(class: &Class, info: &Fdinfo<'_>) -> Detail {
    kind_of(class).map_or_else(|| fields(info), |kind| (kind.detail)(info))
}

/// What it points at, for people.
pub(crate) fn target(class: &Class, detail: &Detail) -> Text {
    match (class, detail) {
        (Class::Other(raw), _) => Text::from(format!("anon_inode:{raw}")),
        (_, Detail::Pidfd(Pidfd { pid: Some(pid), .. })) => Text::from(format!("pid {pid}")),
        (_, Detail::Pidfd(_)) => Text::from("pid ?"),
        (known, _) => known
            .name()
            .map_or_else(|| Text::from(known.to_string()), Text::from),
    }
}

/// The lines beyond the common ones, by name.
pub(crate) fn fields(info: &Fdinfo<'_>) -> Detail {
    let fields = info
        .fields()
        .map(|(key, value)| (String::from_utf8_lossy(key).into_owned(), Text::from(value)))
        .collect();
    Detail::Fields(OtherDetail { fields })
}

fn kind_of(class: &Class) -> Option<&'static AnonymousKind> {
    KINDS.iter().find(|kind| kind.class == *class)
}

fn eventfd(info: &Fdinfo<'_>) -> Detail {
    Detail::Eventfd(fdinfo_detail::eventfd(info))
}

fn timerfd(info: &Fdinfo<'_>) -> Detail {
    Detail::Timerfd(Box::new(fdinfo_detail::timerfd(info)))
}

fn signalfd(info: &Fdinfo<'_>) -> Detail {
    let signals = info.signals();
    Detail::Signalfd(Signalfd { signals })
}

fn io_uring(info: &Fdinfo<'_>) -> Detail {
    Detail::IoUring(fdinfo_detail::io_uring(info))
}

fn eventpoll(info: &Fdinfo<'_>) -> Detail {
    let targets: Vec<_> = info.epoll_targets().map(|target| target.fd).collect();
    Detail::Eventpoll(Box::new(Eventpoll {
        watching: targets.len() as u64,
        targets,
        ..Eventpoll::default()
    }))
}

fn watcher(info: &Fdinfo<'_>) -> Detail {
    Detail::Watcher(WatcherDetail {
        watches: info.watches(),
        inodes: fdinfo_detail::watched(info),
    })
}

fn pidfd(info: &Fdinfo<'_>) -> Detail {
    let (pid, alive) = match info.pidfd() {
        Some(PidfdTarget::Pid(pid)) => (Some(pid), None),
        Some(PidfdTarget::Gone) => (None, Some(false)),
        Some(PidfdTarget::Foreign) | None => (None, None),
    };
    Detail::Pidfd(Pidfd {
        pid,
        alive,
        command: None,
    })
}

#[cfg(test)]
mod tests {
    use fdguard_core::Class;

    use super::{agrees, class_by_name};
    use fdguard_proc::fdinfo::Fdinfo;

    #[test]
    fn a_reused_number_does_not_agree() {
        let timer = Fdinfo::parse(b"pos:\t0\nflags:\t02\nclockid: 1\n");
        assert!(agrees(&Class::Timerfd, &timer));
        assert!(!agrees(&Class::Eventfd, &timer));
        assert!(!agrees(&Class::Other("[fscontext]".into()), &timer));
        let empty = Fdinfo::parse(b"pos:\t0\nflags:\t02\n");
        assert!(agrees(&Class::Eventpoll, &empty));
        assert!(!agrees(&Class::Eventfd, &empty));
    }

    #[test]
    fn brackets_around_a_name_do_not_matter() {
        assert_eq!(class_by_name(b"[eventpoll]"), Some(Class::Eventpoll));
        assert_eq!(class_by_name(b"inotify"), Some(Class::Inotify));
        assert_eq!(class_by_name(b"[fscontext]"), None);
    }
}
