//! How often the judgement is wrong, on the simulated processes of the accuracy example: a bounded
//! number of them, with fixed seeds, and properties that hold for all of a kind. docs/accuracy.md
//! has the results of large runs.

#[path = "../examples/accuracy/clean.rs"]
mod clean;
#[path = "../examples/accuracy/leaks.rs"]
mod leaks;
#[path = "../examples/accuracy/measure.rs"]
mod measure;
#[path = "../examples/accuracy/random.rs"]
mod random;
#[path = "../examples/accuracy/scenarios.rs"]
mod scenarios;
#[path = "../examples/accuracy/simulate.rs"]
mod simulate;
#[path = "../examples/accuracy/source.rs"]
mod source;
#[path = "../examples/accuracy/table.rs"]
mod table;

use fdguard_core::judge::{self, Verdict};
use fdguard_core::timeline::{Look, LookChange, Sighting};
use fdguard_core::{Class, TcpState, Timeline};
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof,
};
use proptest::test_runner::RngSeed;
use random::Random;
use scenarios::{Scenario, Truth, drip_under_a_dozen, of, watched_for};
use source::Source;

/// The same cases on every machine: a statistical judgement has exceptions, and they must not make
/// the test fail at random.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(11),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

#[test]
fn few_leaks_are_missed_and_few_others_called_one() {
    let effort = measure::Effort {
        each: 12,
        seed: 3,
        judged: 1,
    };
    let outcomes: Vec<_> = scenarios::kinds()
        .map(|kind| measure::one(kind, effort, &mut |_, _| {}))
        .collect();
    let text = table::kinds(&outcomes);
    assert!(table::rate(&outcomes, true) <= 1.0, "{text}");
    assert!(table::rate(&outcomes, false) <= 0.5, "{text}");
    // The smallest share that twelve can show is 8 %: one of a kind may be wrong by chance, two may
    // not.
    assert!(outcomes.iter().all(|it| it.wrong() <= 1), "{text}");
    assert!(outcomes.iter().any(|it| it.kind.truth == Truth::MayGrow));
}

#[test]
fn no_leak_by_the_clock_is_missed_in_twenty_seconds() {
    let effort = measure::Effort {
        each: 100,
        seed: 5,
        judged: 1,
    };
    let outcome = measure::one(&leaks::CLOCKWORK, effort, &mut |_, _| {});
    assert_eq!(outcome.wrong(), 0);
}

#[test]
fn one_every_two_seconds_under_a_dozen_is_found_within_a_minute() {
    for every in [0.25, 0.5, 1.0] {
        let found = measure::seconds_to_detection(0.5, every, 1);
        assert!(
            found.is_some_and(|seconds| seconds <= 60.0),
            "{every}: {found:?}"
        );
    }
}

#[test]
fn the_page_has_a_row_for_each_kind() {
    let page = include_str!("../../../docs/accuracy.md");
    for kind in scenarios::kinds().chain([&leaks::CLOCKWORK]) {
        let row = format!("| {} |", kind.name);
        assert!(
            page.contains(&row),
            "{row} is missing: print the table anew"
        );
    }
}

/// Sources that fill up or collect, and have been level for half of the watch.
fn level() -> impl Strategy<Value = Source> {
    let drop = f64::INFINITY;
    prop_oneof![
        (1..400_u32, 0.5..10.0).prop_map(move |(cap, fill)| Source::Pool { cap, fill, drop }),
        (1..400_u32, 0.5..10.0).prop_map(|(cap, fill)| Source::Lru {
            cap,
            rate: f64::from(cap) / fill,
        }),
        (0.5..30.0, 0.5..4.0).prop_map(|(rate, period)| Source::SawTooth { rate, period }),
    ]
}

fn looks_of(scenario: &mut Scenario) -> Vec<Look> {
    (0..scenario.looks).map(|_| scenario.look()).collect()
}

fn timeline(looks: &[Look]) -> Timeline {
    let mut timeline = Timeline::new();
    for look in looks {
        timeline.observe(look);
    }
    timeline
}

fn renumbered(look: &Look, number: impl Fn(u32) -> u32) -> Look {
    let mut look = look.clone();
    if let Some(change) = &mut look.table {
        change.closed = change.closed.iter().map(|fd| number(*fd)).collect();
        for sighting in &mut change.opened {
            sighting.fd = number(sighting.fd);
        }
    }
    look
}

proptest::proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn what_has_been_level_for_half_of_the_watch_is_neither_leaking_nor_growing(
        source in level(),
        looks in 80..400_u32,
        seed in any::<u64>(),
    ) {
        let sources = vec![of(source, Class::Pipe, "pipe:[*]")];
        let mut scenario = watched_for(&mut Random::new(seed), sources, looks, 1.0);
        let found = measure::worst(&timeline(&looks_of(&mut scenario)));
        prop_assert!(found <= Verdict::Bounded, "{source:?} in {looks}: {found:?}");
    }

    #[test]
    fn a_drip_by_the_clock_under_a_tide_is_leaking_after_a_minute(
        rate in (0.5_f64.ln()..50.0_f64.ln()).prop_map(f64::exp),
        every in 0.25..1.0,
        life in 0.05..1.0,
        seed in any::<u64>(),
    ) {
        let mut scenario = drip_under_a_dozen(rate, every, (60.0, life), seed);
        let found = measure::worst(&timeline(&looks_of(&mut scenario)));
        prop_assert_eq!(found, Verdict::Leaking, "{} every {}", rate, every);
    }
}

proptest::proptest! {
    #![proptest_config(cases(30))]

    #[test]
    fn numbers_do_not_matter_and_the_same_looks_give_the_same_judgement(
        kind in 0..scenarios::kinds().count(),
        seed in any::<u64>(),
    ) {
        let kind = scenarios::kinds().nth(kind).expect("a kind");
        let looks = looks_of(&mut (kind.make)(&mut Random::new(seed)));
        let judged = judge::judge(&timeline(&looks));
        prop_assert_eq!(&judged, &judge::judge(&timeline(&looks)));
        let turned: Vec<Look> = looks.iter().map(|look| renumbered(look, |fd| 1_000_000 - 3 * fd)).collect();
        let verdicts: Vec<_> = judged.iter().map(|it| it.verdict).collect();
        let again = judge::judge(&timeline(&turned));
        // The groups are in the order of the numbers; the total and the most severe are the same.
        prop_assert_eq!(again[0].verdict, judged[0].verdict);
        prop_assert_eq!(again.iter().map(|it| it.verdict).max(), verdicts.into_iter().max());
    }
}

fn sighting() -> impl Strategy<Value = Sighting> {
    let class = prop_oneof![
        Just(Class::Regular),
        Just(Class::Deleted),
        Just(Class::Tcp(TcpState::Listen)),
        Just(Class::Tcp(TcpState::CloseWait)),
    ];
    (0..20_u32, class, 0..200_u32).prop_map(|(fd, class, target)| Sighting {
        fd,
        class,
        target: target.to_string().as_str().into(),
        group: None,
    })
}

/// Any look at all: numbers closed that were never open, opened twice, changed before they were
/// seen, a clock that goes backwards or jumps.
fn look() -> impl Strategy<Value = Look> {
    let few = || proptest::collection::vec(sighting(), 0..6);
    let closed = proptest::collection::vec(0..20_u32, 0..6);
    let change = (few(), closed, few()).prop_map(|(opened, closed, changed)| LookChange {
        opened,
        closed,
        changed,
    });
    let at = prop_oneof![-10.0..1000.0, Just(0.0), Just(1e300), Just(-1e300)];
    let count = proptest::option::of(prop_oneof![0..50_u64, Just(u64::MAX)]);
    (at, count, proptest::option::of(change)).prop_map(|(at, count, table)| Look {
        at,
        count,
        table,
        ..Look::default()
    })
}

proptest::proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn no_sequence_of_looks_is_too_odd(looks in proptest::collection::vec(look(), 0..200)) {
        let timeline = timeline(&looks);
        for found in judge::judge(&timeline) {
            prop_assert!((0.0..=1.0).contains(&found.confidence), "{found:?}");
            if let Some(slope) = found.slope {
                prop_assert!(slope.per_second.is_finite(), "{found:?}");
            }
        }
        let held: u64 = timeline.count_of(|_, _| true);
        prop_assert_eq!(held, timeline.live().len() as u64);
    }
}
