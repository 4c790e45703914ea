use super::{DescriptorAtExit, Life, SiteAtExit, judge};
use crate::Class;
use crate::lifetimes::PathCourse;
use crate::origin::Origin;
use crate::proof::RemainsVerdict;
use crate::proof::testing::{frame, origin};

fn life(lived: f64) -> Life {
    Life {
        pid: 7,
        comm: "victim".into(),
        lived,
        was_cut_off: false,
        is_worker: false,
    }
}

fn left(age: f64) -> DescriptorAtExit {
    DescriptorAtExit {
        fd: 3,
        class: Some(Class::Regular),
        target: Some("/srv/a.log".into()),
        call: "open".to_owned(),
        age,
        by_main: true,
    }
}

fn place(opened: u64, closed: u64, left: Vec<DescriptorAtExit>) -> SiteAtExit {
    let stack = vec![frame("/srv/app.py", "serve", 12)];
    let origin = Origin {
        opened,
        closed,
        ..origin(stack)
    };
    SiteAtExit {
        origin,
        course: PathCourse::Unclear,
        is_leaking: false,
        left,
    }
}

fn went(course: PathCourse, place: SiteAtExit) -> SiteAtExit {
    SiteAtExit {
        is_leaking: course == PathCourse::Arrives,
        course,
        ..place
    }
}

fn judged(life: &Life, place: &SiteAtExit) -> RemainsVerdict {
    let remains = judge(life, place, false);
    assert_eq!(remains.len(), 1, "{remains:?}");
    remains[0].judged
}

#[test]
fn r34_a_file_that_was_opened_and_never_closed_fails() {
    let one = place(1, 0, vec![left(0.001)]);
    let remains = judge(&life(0.002), &one, false);
    assert_eq!(
        (remains[0].judged, remains[0].count),
        (RemainsVerdict::Left, 1)
    );
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
        RemainsVerdict::Strayed
    );
    assert_eq!(
        judged(&life(1.0), &place(3, 2, vec![left(0.001)])),
        RemainsVerdict::Strayed
    );
}

#[test]
fn a_lone_one_of_another_class_that_came_before_the_leak_did_not_grow() {
    let null = |age| DescriptorAtExit {
        class: Some(Class::Chardev),
        ..left(age)
    };
    let files = || (1..9).map(|n| left(f64::from(n)));
    let verdicts = |left: Vec<DescriptorAtExit>| {
        let site = went(PathCourse::Arrives, place(9, 0, left));
        let remains = judge(&life(10.0), &site, false);
        let verdict = |class: &Class| {
            let of = remains.iter().find(|it| it.class.as_ref() == Some(class));
            of.unwrap().judged
        };
        (verdict(&Class::Chardev), verdict(&Class::Regular))
    };
    let (grew, held) = (RemainsVerdict::Grew, RemainsVerdict::Held);
    assert_eq!(verdicts(files().chain([null(9.5)]).collect()), (held, grew));
    // The latest of a site that opens anything, and one of two.
    assert_eq!(verdicts(files().chain([null(0.5)]).collect()), (grew, grew));
    let two = files().chain([null(9.5), null(9.6)]);
    assert_eq!(verdicts(two.collect()), (grew, grew));
}

#[test]
fn a_thread_in_the_middle_of_its_work_passes() {
    let busy = DescriptorAtExit {
        by_main: false,
        ..left(0.01)
    };
    assert_eq!(
        judged(&life(1.0), &place(5, 4, vec![busy])),
        RemainsVerdict::InFlight
    );
    assert_eq!(
        judged(&life(1.0), &place(5, 4, vec![left(0.01)])),
        RemainsVerdict::Strayed
    );
}

#[test]
fn a_program_that_a_signal_ended_had_no_time_to_close() {
    let killed = Life {
        was_cut_off: true,
        ..life(0.1)
    };
    assert_eq!(
        judged(&killed, &place(1, 0, vec![left(0.1)])),
        RemainsVerdict::CutOff
    );
}

#[test]
fn what_the_runtime_opened_for_itself_passes() {
    let mut runtime = place(1, 0, vec![left(0.1)]);
    runtime.origin.stack = vec![frame("/usr/lib/python3.11/random.py", "seed", 3)];
    assert_eq!(judged(&life(0.2), &runtime), RemainsVerdict::Runtime);
}

#[test]
fn one_place_may_leave_several_classes() {
    let timer = DescriptorAtExit {
        class: Some(Class::Timerfd),
        target: None,
        ..left(0.1)
    };
    let remains = judge(&life(0.2), &place(2, 0, vec![left(0.1), timer]), false);
    let classes: Vec<_> = remains.iter().map(|one| one.class.clone()).collect();
    assert_eq!(classes, [Some(Class::Regular), Some(Class::Timerfd)]);
}

#[test]
fn a_thread_that_a_busy_machine_held_up_passes_and_one_that_forgot_does_not() {
    let by_thread = |age: f64| DescriptorAtExit {
        by_main: false,
        ..left(age)
    };
    assert_eq!(
        judged(&life(2.0), &place(7, 6, vec![by_thread(0.2)])),
        RemainsVerdict::InFlight
    );
    assert_eq!(
        judged(&life(2.0), &place(7, 6, vec![by_thread(1.5)])),
        RemainsVerdict::Strayed
    );
}

#[test]
fn the_course_of_the_line_decides_however_long_the_program_lived() {
    for lived in [2.0, 22.0] {
        let some = || place(200, 0, vec![left(0.3), left(1.0)]);
        let of = |course| judged(&life(lived), &went(course, some()));
        assert_eq!(of(PathCourse::Arrives), RemainsVerdict::Grew);
        assert_eq!(of(PathCourse::Rolls), RemainsVerdict::Rolling);
    }
    // Also if a signal terminated it.
    let killed = Life {
        was_cut_off: true,
        ..life(9.0)
    };
    let leak = went(PathCourse::Arrives, place(20, 0, vec![left(1.0)]));
    assert_eq!(judged(&killed, &leak), RemainsVerdict::Grew);
}

#[test]
fn what_did_not_become_more_in_a_long_life_is_held_unless_the_user_is_strict() {
    let pool = went(PathCourse::Stopped, place(50, 0, vec![left(15.0); 50]));
    assert_eq!(judged(&life(20.0), &pool), RemainsVerdict::Held);
    assert_eq!(
        judge(&life(20.0), &pool, true)[0].judged,
        RemainsVerdict::Left
    );
    let log = place(1, 0, vec![left(3.0)]);
    assert_eq!(judged(&life(20.0), &log), RemainsVerdict::Held);
}

#[test]
fn a_pool_made_at_the_start_is_held_in_a_short_life_too() {
    for course in [PathCourse::Stopped, PathCourse::Burst] {
        let pool = |age: f64| went(course, place(20, 0, vec![left(age); 20]));
        assert_eq!(judged(&life(2.5), &pool(2.0)), RemainsVerdict::Held);
        assert_eq!(
            judged(&life(2.5), &pool(0.1)),
            RemainsVerdict::Left,
            "at the end"
        );
        assert_eq!(
            judged(&life(0.5), &pool(0.4)),
            RemainsVerdict::Left,
            "too short"
        );
    }
    let one = went(PathCourse::Stopped, place(1, 0, vec![left(2.0)]));
    assert_eq!(judged(&life(2.5), &one), RemainsVerdict::Left, "not a pool");
}

#[test]
fn what_a_worker_opens_as_it_starts_and_what_listens_is_held() {
    let worker = Life {
        is_worker: true,
        ..life(3.0)
    };
    assert_eq!(
        judged(&worker, &place(2, 0, vec![left(2.9)])),
        RemainsVerdict::Held
    );
    assert_eq!(
        judged(&worker, &place(2, 0, vec![left(1.0)])),
        RemainsVerdict::Left
    );
    let listening = DescriptorAtExit {
        class: Some(Class::Tcp(crate::TcpState::Listen)),
        ..left(2.0)
    };
    assert_eq!(
        judged(&life(3.0), &place(1, 0, vec![listening])),
        RemainsVerdict::Held
    );
}
