//! Anonymous inodes, by lsof's name for them: `[eventfd:12]`, `[eventpoll:4,5]`, `inotify`.

use bstr::ByteSlice as _;
use fdguard_core::detail::{Eventfd, Eventpoll, IoUring, OtherDetail, Pidfd, Timerfd};
use fdguard_core::{Class, Detail, Fd};

use super::classify::Thing;
use crate::anonymous;
use fdguard_proc::ascii::decimal;

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
    let Some(class) = anonymous::class_by_name(word) else {
        let raw = name.to_str_lossy();
        return Thing::named(
            Class::Other(raw.as_ref().into()),
            format!("anon_inode:{raw}"),
        );
    };
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
        target: anonymous::target(&class, &detail),
        class,
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
