//! Anonymous inodes, by lsof's name for them: `[eventfd:12]`, `[eventpoll:4,5]`, `inotify`.

use bstr::ByteSlice as _;
use fdguard_core::detail::{Eventfd, Eventpoll, IoUring, OtherDetail, Pidfd, Timerfd};
use fdguard_core::{Class, Detail, Fd, Text};
use fdguard_proc::ascii::decimal;

use super::classify::Thing;

const CLASSES: &[(&[u8], Class)] = &[
    (b"eventpoll", Class::Eventpoll),
    (b"eventfd", Class::Eventfd),
    (b"timerfd", Class::Timerfd),
    (b"signalfd", Class::Signalfd),
    (b"inotify", Class::Inotify),
    (b"fanotify", Class::Fanotify),
    (b"pidfd", Class::Pidfd),
    (b"io_uring", Class::IoUring),
    (b"perf_event", Class::PerfEvent),
    (b"bpf-map", Class::BpfMap),
    (b"bpf-prog", Class::BpfProg),
    (b"bpf-link", Class::BpfLink),
    (b"bpf_link", Class::BpfLink),
    (b"userfaultfd", Class::Userfaultfd),
];

/// The thing behind a name.
pub(super) fn describe(name: &[u8]) -> Thing {
    let bare = name
        .strip_prefix(b"[")
        .and_then(|inner| inner.strip_suffix(b"]"))
        .unwrap_or(name);
    let (word, told) = match bare.split_once_str(b":") {
        Some((word, told)) => (word, Some(told)),
        None => (bare, None),
    };
    let Some((_, class)) = CLASSES.iter().find(|(known, _)| *known == word) else {
        let raw = name.to_str_lossy();
        return Thing::named(
            Class::Other(raw.as_ref().into()),
            format!("anon_inode:{raw}"),
        );
    };
    let mut target = Text::from(class.to_string());
    let detail = match class {
        Class::Eventpoll => eventpoll(told),
        Class::Eventfd => Detail::Eventfd(Eventfd {
            id: told.and_then(decimal),
            ..Eventfd::default()
        }),
        Class::Timerfd => Detail::Timerfd(Box::<Timerfd>::default()),
        Class::IoUring => Detail::IoUring(IoUring::default()),
        Class::Pidfd => {
            let pid = told
                .and_then(decimal)
                .and_then(|pid| u32::try_from(pid).ok());
            target = Text::from(pid.map_or_else(|| "pid ?".to_owned(), |pid| format!("pid {pid}")));
            Detail::Pidfd(Pidfd {
                pid,
                ..Pidfd::default()
            })
        }
        // Signals, watches and programs are not reported: an empty record shows that, whereas an
        // empty list would claim that there are none.
        _ => Detail::Fields(OtherDetail::default()),
    };
    Thing {
        class: class.clone(),
        target,
        detail,
    }
}

/// The registered numbers. lsof truncates the list with dots: an incomplete list is not used.
fn eventpoll(told: Option<&[u8]>) -> Detail {
    let targets: Option<Vec<Fd>> = match told {
        None => Some(Vec::new()),
        Some(list) => list
            .split(|byte| *byte == b',')
            .map(|number| Fd::try_from(decimal(number)?).ok())
            .collect(),
    };
    match targets {
        Some(targets) => Detail::Eventpoll(Box::new(Eventpoll {
            watching: targets.len() as u64,
            targets,
            ..Eventpoll::default()
        })),
        None => Detail::Fields(OtherDetail::default()),
    }
}
