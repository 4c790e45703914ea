use super::{Closed, Left, Life, Place, judge};
use crate::Class;
use crate::origin::Origin;
use crate::proof::Judged;
use crate::proof::testing::{frame, origin};

fn life(lived: f64) -> Life {
    Life {
        pid: 7,
        comm: "victim".into(),
        lived,
        has_history: false,
        was_cut_off: false,
    }
}

fn left(age: f64) -> Left {
    Left {
        fd: 3,
        class: Some(Class::Regular),
        target: Some("/srv/a.log".into()),
        call: "open".to_owned(),
        age,
        by_main: true,
        grew: false,
    }
}

/// What was closed was closed soon.
fn place(opened: u64, closed: u64, left: Vec<Left>) -> Place {
    let stack = vec![frame("/srv/app.py", "serve", 12)];
    let origin = Origin {
        opened,
        closed,
        ..origin(stack)
    };
    let closed = Closed {
        count: closed,
        born: 0.5,
        youngest: 1.0,
        lived: 0.01,
        longest: 0.02,
    };
    Place {
        origin,
        closed,
        left,
    }
}

/// What was closed are the oldest, one by one, when they were so old; the last of them was opened then.
fn rolling(place: Place, (age, youngest): (f64, f64)) -> Place {
    let closed = Closed {
        born: youngest / 2.0,
        youngest,
        lived: age,
        longest: age,
        ..place.closed
    };
    Place { closed, ..place }
}

fn judged(life: &Life, place: &Place) -> Judged {
    let remains = judge(life, place, false);
    assert_eq!(remains.len(), 1, "{remains:?}");
    remains[0].judged
}

/// One of those by which the watch saw the number grow.
fn grown(age: f64) -> Left {
    Left {
        grew: true,
        ..left(age)
    }
}

/// Two hundred of them, so far apart.
fn ages(step: f64) -> Vec<Left> {
    (1..=200).map(|n| grown(f64::from(n) * step)).collect()
}

#[test]
fn r34_a_file_that_was_opened_and_never_closed_fails() {
    let one = place(1, 0, vec![left(0.001)]);
    let remains = judge(&life(0.002), &one, false);
    assert_eq!((remains[0].judged, remains[0].count), (Judged::Left, 1));
    assert!(remains[0].judged.fails());
    assert!(
        remains[0].why.contains("app.py:12 serve"),
        "{}",
        remains[0].why
    );
    assert_eq!(remains[0].target, Some("/srv/a.log".into()));
}

#[test]
fn r35_one_that_was_forgotten_among_many_that_were_closed_fails() {
    assert_eq!(
        judged(&life(1.0), &place(100, 99, vec![left(0.6)])),
        Judged::Strayed
    );
    assert_eq!(
        judged(&life(1.0), &place(3, 2, vec![left(0.001)])),
        Judged::Strayed
    );
}

#[test]
fn a_cache_that_closes_its_oldest_passes_and_a_leak_at_the_same_rate_does_not() {
    let ages = |step: f64| {
        (1..=20)
            .map(|n| left(f64::from(n) * step))
            .collect::<Vec<_>>()
    };
    // The last 20 of 100 openings in a second: none is older than 0.2 s.
    assert_eq!(
        judged(&life(1.0), &rolling(place(100, 80, ages(0.01)), (0.2, 0.8))),
        Judged::Rolling
    );
    // 20 of 100 openings, from all over that second.
    assert_eq!(
        judged(&life(1.0), &place(100, 80, ages(0.05))),
        Judged::Strayed
    );
}

#[test]
fn a_thread_in_the_middle_of_its_work_passes() {
    let busy = Left {
        by_main: false,
        ..left(0.01)
    };
    assert_eq!(
        judged(&life(1.0), &place(5, 4, vec![busy])),
        Judged::InFlight
    );
    assert_eq!(
        judged(&life(1.0), &place(5, 4, vec![left(0.01)])),
        Judged::Strayed
    );
}

#[test]
fn with_a_history_only_what_grew_fails_unless_the_user_is_strict() {
    let long = Life {
        has_history: true,
        ..life(20.0)
    };
    let pool = place(50, 0, vec![left(15.0); 50]);
    assert_eq!(judged(&long, &pool), Judged::Held);
    assert_eq!(judge(&long, &pool, true)[0].judged, Judged::Left);
    let grown = Left {
        grew: true,
        ..left(9.0)
    };
    let both = judge(&long, &place(80, 0, vec![left(19.0), grown]), false);
    let kinds: Vec<Judged> = both.iter().map(|one| one.judged).collect();
    assert_eq!(kinds, [Judged::Grew, Judged::Held]);
}

#[test]
fn a_program_that_a_signal_ended_had_no_time_to_close() {
    let killed = Life {
        was_cut_off: true,
        ..life(0.1)
    };
    assert_eq!(
        judged(&killed, &place(1, 0, vec![left(0.1)])),
        Judged::CutOff
    );
}

#[test]
fn what_the_runtime_opened_for_itself_passes() {
    let mut runtime = place(1, 0, vec![left(0.1)]);
    runtime.origin.stack = vec![frame("/usr/lib/python3.11/random.py", "seed", 3)];
    assert_eq!(judged(&life(0.2), &runtime), Judged::Runtime);
}

#[test]
fn one_place_may_leave_several_classes() {
    let timer = Left {
        class: Some(Class::Timerfd),
        target: None,
        ..left(0.1)
    };
    let remains = judge(&life(0.2), &place(2, 0, vec![left(0.1), timer]), false);
    let classes: Vec<_> = remains.iter().map(|one| one.class.clone()).collect();
    assert_eq!(classes, [Some(Class::Regular), Some(Class::Timerfd)]);
}

#[test]
fn r15_what_the_line_itself_shows_to_be_a_cache_is_no_leak_whatever_it_looked_like_from_outside() {
    let long = Life {
        has_history: true,
        ..life(21.0)
    };
    // The last 200 of 420.
    let cache = rolling(place(420, 220, ages(0.05)), (10.0, 11.0));
    assert_eq!(judged(&long, &cache), Judged::Rolling);
    // As many, from all over its life.
    assert_eq!(judged(&long, &place(420, 220, ages(0.1))), Judged::Grew);
    assert_eq!(judged(&long, &place(200, 0, ages(0.05))), Judged::Grew);
}

#[test]
fn a_thread_that_a_busy_machine_held_up_passes_and_one_that_forgot_does_not() {
    let by_thread = |age: f64| Left {
        by_main: false,
        ..left(age)
    };
    assert_eq!(
        judged(&life(2.0), &place(7, 6, vec![by_thread(0.2)])),
        Judged::InFlight
    );
    assert_eq!(
        judged(&life(2.0), &place(7, 6, vec![by_thread(1.5)])),
        Judged::Strayed
    );
}

#[test]
fn r13_what_arrives_all_over_the_life_is_a_leak_although_it_did_not_look_so_from_outside() {
    let long = Life {
        has_history: true,
        ..life(22.0)
    };
    let ages = |ages: &mut dyn Iterator<Item = f64>| ages.map(left).collect::<Vec<_>>();
    // Three a second until a moment before the end.
    let steady = ages(&mut (1..=60).map(|n| 1.0 + f64::from(n) / 3.0));
    assert_eq!(judged(&long, &place(60, 0, steady.clone())), Judged::Grew);
    // The same line closes most of what it opens.
    assert_eq!(judged(&long, &place(1000, 940, steady)), Judged::Grew);
    // A pool that was full after a third of the time.
    let pool = ages(&mut (1..=50).map(|n| 14.0 + f64::from(n) / 7.0));
    assert_eq!(judged(&long, &place(50, 0, pool)), Judged::Held);
    // Connections that are replaced after a while: few are old.
    let replaced = ages(&mut (1..=50).map(|n| -5.0 * (1.0 - f64::from(n) / 51.0).ln()));
    let replaced = Place {
        closed: Closed {
            count: 150,
            born: 8.5,
            youngest: 21.0,
            lived: 4.2,
            longest: 17.0,
        },
        ..place(200, 150, replaced)
    };
    assert_eq!(judged(&long, &replaced), Judged::Held);
    // Opened at the start.
    let start = ages(&mut (1..=50).map(|n| 21.0 + f64::from(n) / 100.0));
    assert_eq!(judged(&long, &place(50, 0, start)), Judged::Held);
}

#[test]
fn r15_a_cache_that_has_only_begun_to_replace_is_known() {
    let long = Life {
        has_history: true,
        ..life(20.5)
    };
    let cache = rolling(place(249, 49, ages(0.0855)), (17.1, 3.4));
    assert_eq!(judged(&long, &cache), Judged::Rolling);
    // Four of five leak, from the beginning on.
    assert_eq!(judged(&long, &place(249, 49, ages(0.102))), Judged::Grew);
}

#[test]
fn r15_a_pool_that_is_full_for_most_of_the_time_is_no_leak_whatever_it_looked_like_from_outside() {
    let long = Life {
        has_history: true,
        ..life(22.2)
    };
    // Fifty in the first six seconds, none in the fifteen since.
    let pool = (0..50)
        .map(|n| grown(20.8 - f64::from(n) * 0.12))
        .collect::<Vec<_>>();
    assert_eq!(judged(&long, &place(50, 0, pool)), Judged::Held);
    let leak = (0..50)
        .map(|n| grown(20.8 - f64::from(n) * 0.39))
        .collect::<Vec<_>>();
    assert_eq!(judged(&long, &place(50, 0, leak)), Judged::Grew);
}

#[test]
fn a_long_life_is_a_history_although_a_busy_machine_let_nobody_look() {
    let pool = place(
        50,
        0,
        (0..50).map(|n| left(20.0 - f64::from(n) * 0.12)).collect(),
    );
    assert_eq!(judged(&life(22.0), &pool), Judged::Held);
    let leak = place(
        50,
        0,
        (0..50).map(|n| left(20.0 - f64::from(n) * 0.38)).collect(),
    );
    assert_eq!(judged(&life(22.0), &leak), Judged::Grew);
    // A short one has none.
    let short = place(50, 0, vec![left(2.0); 50]);
    assert_eq!(judged(&life(3.0), &short), Judged::Left);
}
