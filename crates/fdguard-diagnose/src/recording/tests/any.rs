//! Arbitrary recordings.

use fdguard_core::diagnosis::WatchEnd;
use fdguard_core::recording::{Appearance, RecordingEntry};
use fdguard_core::select_use::SelectUse;
use fdguard_core::snapshot::{Ceilings, Limits, Process};
use fdguard_core::timeline::{ChildCount, Look, LookChange, Sighting};
use fdguard_core::{Class, Gap, TcpState, Text, Tier};
use jiff::Timestamp;
use proptest::prelude::*;

use super::super::play;
use super::{lines, opened, read, recorded, small};

fn text() -> impl Strategy<Value = Text> {
    prop_oneof![
        any::<Vec<u8>>().prop_map(Text::from),
        "[ -~]{0,20}".prop_map(Text::from),
    ]
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![
        Just(Class::Regular),
        Just(Class::Pipe),
        Just(Class::Tcp(TcpState::Established)),
        "[a-z]{1,8}".prop_map(|name| Class::Other(name.into())),
    ]
}

fn sightings() -> impl Strategy<Value = Vec<Sighting>> {
    let one = (any::<u32>(), class(), text(), proptest::option::of(text()));
    let one = one.prop_map(|(fd, class, target, group)| Sighting {
        fd,
        class,
        target,
        group,
    });
    proptest::collection::vec(one, 0..6)
}

fn any_look() -> impl Strategy<Value = Look> {
    let change = (sightings(), any::<Vec<u32>>(), sightings());
    let change = change.prop_map(|(opened, closed, changed)| LookChange {
        opened,
        closed,
        changed,
    });
    let limits = (any::<Option<u64>>(), any::<Option<u64>>());
    let limits = limits.prop_map(|(soft, hard)| Limits { soft, hard });
    let family = (any::<u64>(), any::<u64>());
    let family = family.prop_map(|(children, zombies)| ChildCount { children, zombies });
    let process = text().prop_map(|comm| {
        Box::new(Process {
            comm,
            ..Process::default()
        })
    });
    (
        0.0..1e9_f64,
        any::<Option<u64>>(),
        proptest::option::of(change),
        proptest::option::of(limits),
        proptest::option::of(Just(Ceilings::default())),
        proptest::option::of(family),
        proptest::option::of(process),
    )
        .prop_map(|(at, count, table, limits, host, family, process)| Look {
            at,
            count,
            table,
            limits,
            host,
            family,
            process,
        })
}

/// Each has its own process, since time must not go backwards within one.
fn any_entry() -> impl Strategy<Value = RecordingEntry> {
    let select = prop_oneof![
        Just(None),
        Just(Some(SelectUse::Absent)),
        text().prop_map(|object| Some(SelectUse::Imports {
            objects: vec![object]
        })),
    ];
    let appearance = (text(), text(), select, any::<Option<u32>>(), 0.0..1e6_f64);
    let appearance = appearance.prop_map(|(comm, exe, select, successor_of, at)| {
        let process = Process {
            comm,
            exe: Some(exe),
            ..Process::default()
        };
        RecordingEntry::Process(Box::new(Appearance {
            id: 0,
            at,
            process,
            tier: Tier::Radar,
            select,
            successor_of,
        }))
    });
    prop_oneof![
        appearance,
        any_look().prop_map(|look| RecordingEntry::Look {
            id: 0,
            look: Box::new(look)
        }),
        (0.0..1e9_f64).prop_map(|at| RecordingEntry::Gone { id: 0, at }),
        any::<(String, String, String)>()
            .prop_map(|(a, b, c)| RecordingEntry::Gap(Gap::new(a, b, c))),
        Just(RecordingEntry::End {
            ended: WatchEnd::Interrupted,
            ended_at: Timestamp::UNIX_EPOCH
        }),
    ]
}

fn numbered(mut entries: Vec<RecordingEntry>) -> Vec<RecordingEntry> {
    for (number, entry) in (0..).zip(&mut entries) {
        match entry {
            RecordingEntry::Process(appearance) => appearance.id = number,
            RecordingEntry::Look { id, .. } | RecordingEntry::Gone { id, .. } => *id = number,
            RecordingEntry::Gap(_) | RecordingEntry::End { .. } => {}
        }
    }
    entries
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_entries_come_back_as_they_were(
        entries in proptest::collection::vec(any_entry(), 0..12).prop_map(numbered),
        compressed: bool,
    ) {
        let name = if compressed { "a.zst" } else { "a.jsonl" };
        prop_assert_eq!(read(&recorded(name, &entries)), (entries, None));
    }

    #[test]
    fn any_bytes_are_survived(bytes: Vec<u8>, with_header: bool, flip in any::<prop::sample::Index>()) {
        let mut input = if with_header { lines(&[]) } else { Vec::new() };
        input.extend(bytes);
        if let Ok((watch, _)) = opened(&input).map(play) {
            prop_assert!(watch.ended().is_some());
        }
        let mut damaged = recorded("a.zst", &small());
        let at = flip.index(damaged.len());
        damaged[at] ^= 0x55;
        if let Ok((watch, _)) = opened(&damaged).map(play) {
            prop_assert!(watch.ended().is_some());
        }
    }
}
