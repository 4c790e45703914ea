//! Nonsensical events, and very many of them.

use jiff::Timestamp;
use proptest::prelude::*;
use proptest::sample::select;

use crate::event::{
    CloseCall, CollectedEvents, Errno, FdCall, OpenCall, StackId, TraceEvent, What,
};
use crate::hazard::HazardDetector;
use crate::testing::trace_script::process;
use crate::{Class, FileId};

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0_u32..8, 1 => 1020_u32..1030, 1 => any::<u32>()]
}

fn errno() -> impl Strategy<Value = Option<Errno>> {
    let linux = prop_oneof![Just(4), Just(9), Just(24), Just(88), any::<i32>()];
    prop::option::of(linux.prop_map(Errno::from_linux))
}

fn file() -> impl Strategy<Value = Option<FileId>> {
    prop::option::of((0_u64..3).prop_map(|ino| FileId { mnt: 1, ino }))
}

fn open() -> impl Strategy<Value = What> {
    let class = [None, Some(Class::Regular), Some(Class::Unix)];
    let call = [OpenCall::Open, OpenCall::Dup2, OpenCall::Socket];
    let open = (
        number(),
        select(call.to_vec()),
        select(class.to_vec()),
        file(),
        any::<bool>(),
    );
    open.prop_map(|(fd, call, class, file, cloexec)| What::Open {
        fd,
        call,
        class,
        file,
        cloexec,
    })
}

fn close() -> impl Strategy<Value = What> {
    let call = select(vec![CloseCall::Close, CloseCall::Dup2, CloseCall::Unknown]);
    let one =
        (number(), call, errno()).prop_map(|(fd, call, errno)| What::Close { fd, call, errno });
    let range = (number(), number(), any::<bool>());
    let many = range.prop_map(|(first, last, at_exec)| What::CloseRange {
        first,
        last,
        at_exec,
    });
    prop_oneof![8 => one, 1 => many]
}

fn call() -> impl Strategy<Value = What> {
    let call = || {
        select(vec![
            FdCall::Read,
            FdCall::Write,
            FdCall::Poll,
            FdCall::Send,
        ])
    };
    let bytes = prop::collection::vec(any::<u8>(), 0..20);
    let used = (number(), call(), bytes, errno());
    let used = used.prop_map(|(fd, call, bytes, errno)| What::Use {
        fd,
        call,
        bytes,
        errno,
    });
    let enter = (number(), call()).prop_map(|(fd, call)| What::Enter { fd, call });
    let range = prop::option::of((any::<u64>(), any::<u64>()));
    let lock = (number(), file(), range, any::<bool>());
    let lock = lock.prop_map(|(fd, file, range, taken)| What::Lock {
        fd,
        file,
        range,
        taken,
    });
    prop_oneof![6 => used, 4 => enter, 2 => lock]
}

fn other() -> impl Strategy<Value = What> {
    let fork = (1_u32..4, any::<bool>()).prop_map(|(pid, shares_table)| What::Fork {
        child: process(pid),
        shares_table,
    });
    let refused = errno().prop_map(|errno| What::Refused {
        call: OpenCall::Open,
        errno: errno.unwrap_or(Errno::Emfile),
    });
    let kept = prop::option::of(prop::collection::vec(number(), 0..4));
    prop_oneof![
        fork,
        refused,
        Just(What::Leave),
        number().prop_map(|fd| What::Shutdown { fd }),
        number().prop_map(|nfds| What::Select { nfds }),
        kept.prop_map(|kept| What::Exec { kept }),
        Just(What::Exit),
        any::<u64>().prop_map(|count| What::Lost { count }),
    ]
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![8 => open(), 9 => close(), 12 => call(), 7 => other()]
}

proptest! {
    #[test]
    fn r40_nonsense_never_panics_and_every_hazard_has_a_page(
        told in prop::collection::vec((1_u32..4, 1_u32..4, prop::option::of(0_u32..4), any::<u64>(), what()), 0..200)
    ) {
        let mut detector = HazardDetector::new(CollectedEvents::ALL);
        for (pid, thread, stack, at, what) in told {
            detector.observe(&TraceEvent { process: process(pid), thread, at, stack: stack.map(StackId), what });
        }
        let found = detector.hazards(&|_| Vec::new(), &|_| Timestamp::UNIX_EPOCH);
        for hazard in found {
            prop_assert!(crate::hazard::HAZARDS.iter().any(|(rule, _)| rule.id == hazard.rule));
            prop_assert!(hazard.count > 0);
        }
        prop_assert!(detector.gaps().len() < 3);
    }
}

#[test]
fn r40_a_million_events_of_ever_new_threads_and_places_stay_small() {
    let mut detector = HazardDetector::new(CollectedEvents::ALL);
    for step in 0..200_000_u32 {
        let fd = 3 + step % 500;
        let open = What::Open {
            fd,
            call: OpenCall::Open,
            class: Some(Class::Regular),
            file: Some(FileId {
                mnt: 1,
                ino: step.into(),
            }),
            cloexec: true,
        };
        let (call, range, taken) = (FdCall::Read, None, true);
        let close = CloseCall::Close;
        let enter = What::Enter { fd, call };
        let lock = What::Lock {
            fd,
            file: None,
            range,
            taken,
        };
        let twice = |errno| What::Close {
            fd,
            call: close,
            errno,
        };
        for what in [open, enter, twice(None), twice(Some(Errno::Ebadf)), lock] {
            detector.observe(&TraceEvent {
                process: process(1),
                thread: step,
                at: u64::from(step),
                stack: Some(StackId(step)),
                what,
            });
        }
    }
    let found = detector.hazards(&|_| Vec::new(), &|_| Timestamp::UNIX_EPOCH);
    assert!(found.len() <= 8192, "{}", found.len());
    let gaps = detector.gaps();
    assert!(gaps[0].what.ends_with("more hazards"), "{gaps:?}");
}
