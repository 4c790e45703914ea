use proptest::prelude::*;

use super::super::testing::{Story, cache, every, held, swept};
use super::{PathCourse, PathHistory, judge};

fn course(story: &Story, until: f64) -> PathCourse {
    judge(&story.history(until)).course
}

#[test]
fn a_file_every_quarter_of_a_second_leaks_however_the_program_ends() {
    let births = every(0.25, 1.0, 56);
    assert_eq!(
        course(&Story::of(&held(&births)), 15.2),
        PathCourse::Arrives
    );
    // A tidy shutdown.
    let tidy = Story::of(&swept(&births, 15.0));
    let judgement = judge(&tidy.history(15.8));
    assert_eq!(judgement.course, PathCourse::Arrives);
    assert!(judgement.is_released);
    assert_eq!(judgement.survivors.len(), 56);
    // The interpreter cleans up.
    let finalized = Story {
        finalized: Some(15.0),
        ..Story::of(&swept(&births, 15.0))
    };
    assert_eq!(course(&finalized, 15.8), PathCourse::Arrives);
    // It got a termination signal, and closes slowly.
    let told = Story {
        ending: Some(15.0),
        ..Story::of(&swept(&births, 15.5))
    };
    assert_eq!(course(&told, 30.0), PathCourse::Arrives);
}

#[test]
fn the_last_descriptor_that_was_closed_as_usual_is_not_counted_with_those_of_the_sweep() {
    let births = every(0.25, 1.0, 56);
    // Between two leaks the same path opens and closes one at once, also after the last leak.
    let used = every(0.25, 1.1, 56);
    let used = used.iter().map(|at| (*at, Some(at + 0.001)));
    for (finalized, ending) in [(Some(16.0), None), (None, Some(15.5)), (None, None)] {
        let mut lives = swept(&births, 16.0);
        lives.extend(used.clone());
        let story = Story {
            finalized,
            ending,
            ..Story::of(&lives)
        };
        let judgement = judge(&story.history(17.0));
        assert_eq!(judgement.course, PathCourse::Arrives);
        assert!(judgement.is_released);
        assert_eq!(judgement.survivors.len(), 56);
    }
}

#[test]
fn idle_time_after_a_leak_changes_nothing() {
    let births = every(0.1, 1.0, 40);
    for idle in [1.5, 4.0, 10.0, 60.0, 3600.0] {
        let story = Story::of(&held(&births));
        assert_eq!(
            course(&story, 4.9 + idle),
            PathCourse::Arrives,
            "{idle} s idle"
        );
    }
    // A directory for each job, four seconds long, and a pause of a second and a half.
    let jobs = Story::of(&held(&every(0.2, 0.1, 20)));
    assert_eq!(course(&jobs, 5.6), PathCourse::Arrives);
    // A heartbeat while there are no requests.
    let alive = Story::of(&held(&births)).busy(0.0, 60.0, 10.0);
    assert_eq!(course(&alive, 60.0), PathCourse::Arrives);
}

#[test]
fn a_program_that_runs_for_a_few_seconds_is_judged_by_its_births() {
    for (seconds, count) in [(1.5, 12), (3.0, 12), (5.0, 40)] {
        let births = every(seconds / f64::from(count), 0.1, count);
        let story = Story::of(&held(&births));
        assert_eq!(
            course(&story, seconds + 0.2),
            PathCourse::Arrives,
            "{seconds}"
        );
        // Also when the interpreter closes all.
        let finalized = Story {
            finalized: Some(seconds + 0.1),
            ..Story::of(&swept(&births, seconds + 0.1))
        };
        assert_eq!(course(&finalized, seconds + 0.9), PathCourse::Arrives);
    }
}

#[test]
fn a_pool_made_at_the_start_is_not_a_leak_whether_it_is_used_or_not() {
    for spent in [0.01, 0.1, 0.5, 0.9] {
        let births = every(spent / 20.0, 0.3, 20);
        let story = Story::of(&held(&births));
        for until in [2.5, 10.0, 60.0] {
            assert_ne!(
                course(&story, until),
                PathCourse::Arrives,
                "{spent} {until}"
            );
            let busy = story.clone().busy(0.0, until, 0.1);
            assert_ne!(course(&busy, until), PathCourse::Arrives, "{spent} {until}");
        }
    }
}

#[test]
fn a_pool_that_fills_and_is_full_has_stopped() {
    for fills in [4.0, 6.0, 9.0, 12.0] {
        let story = Story::of(&held(&every(fills / 50.0, 1.5, 50))).busy(0.0, 22.5, 0.01);
        assert_eq!(
            course(&story, 22.5),
            PathCourse::Stopped,
            "{fills} s to fill"
        );
    }
}

#[test]
fn what_is_still_used_after_it_filled_is_a_cache_although_nothing_is_opened_any_more() {
    let births = every(0.05, 0.5, 50);
    let story = Story::of(&held(&births));
    let mut history = story.history(9.0);
    assert_eq!(
        judge(&history).course,
        PathCourse::Arrives,
        "nobody can tell"
    );
    history.used_late = 30;
    assert_eq!(judge(&history).course, PathCourse::Stopped);
}

/// The connections of a Go client: the kernel's tracer records no uses.
#[test]
fn a_pool_that_is_full_has_stopped_where_uses_are_not_recorded() {
    let course_until = |until| {
        let story = Story::of(&held(&every(0.2, 0.5, 20)));
        let history = PathHistory {
            is_use_unknown: true,
            ..story.history(until)
        };
        judge(&history).course
    };
    assert_eq!(course_until(12.0), PathCourse::Stopped);
    // A silence that is short beside the time in which they arrived means nothing.
    assert_eq!(course_until(5.5), PathCourse::Arrives);
}

/// Thirty connections that joined in the first eight seconds; from then on every third of a second
/// one of them, whichever, is replaced. `lost`: each of this many replaced ones stays open.
fn clients(lost: Option<usize>) -> Story {
    let mut lives: Vec<(f64, Option<f64>)> = held(&every(0.27, 1.0, 30));
    for (nth, at) in every(0.35, 9.2, 34).into_iter().enumerate() {
        let open: Vec<usize> = (0..lives.len())
            .filter(|one| lives[*one].1.is_none())
            .collect();
        if lost.is_none_or(|every| nth % every != 0) {
            lives[open[nth * 7 % open.len()]].1 = Some(at - 0.001);
        }
        lives.push((at, None));
    }
    Story::of(&lives).busy(0.0, 22.0, 0.05)
}

#[test]
fn a_pool_that_renews_what_it_holds_in_any_order_is_level() {
    assert_eq!(course(&clients(None), 22.0), PathCourse::Rolls);
    assert_eq!(course(&clients(Some(2)), 22.0), PathCourse::Arrives);
}

#[test]
fn a_drip_under_short_lives_is_a_leak_although_the_number_was_higher_before() {
    let mut lives = Vec::new();
    for (nth, at) in every(0.02, 0.5, 1000).into_iter().enumerate() {
        let burst = if (50..150).contains(&nth) { 1.5 } else { 0.3 };
        lives.push((at, (nth % 40 != 0).then_some(at + burst)));
    }
    assert_eq!(course(&Story::of(&lives), 20.6), PathCourse::Arrives);
}

#[test]
fn a_cache_that_replaces_its_oldest_rolls() {
    for replaced in [2, 3, 10, 34, 49, 110, 220] {
        let births = every(20.0 / f64::from(200 + replaced), 1.0, 200 + replaced);
        let story = Story::of(&cache(&births, 200));
        assert_eq!(
            course(&story, 22.5),
            PathCourse::Rolls,
            "{replaced} replaced"
        );
        // It is emptied at the end.
        let mut lives = cache(&births, 200);
        for (_, end) in &mut lives {
            end.get_or_insert(22.0);
        }
        let emptied = Story::of(&lives);
        assert_eq!(
            course(&emptied, 22.5),
            PathCourse::Rolls,
            "{replaced} replaced"
        );
    }
}

#[test]
fn one_job_that_opens_many_and_closes_them_is_not_a_leak() {
    let merge = Story::of(&swept(&every(0.005, 0.2, 200), 1.3));
    assert_ne!(course(&merge, 3.4), PathCourse::Arrives);
    // In the middle of a longer run.
    let batch = Story::of(&swept(&every(0.05, 2.0, 120), 8.5)).busy(0.0, 30.0, 0.05);
    assert_ne!(course(&batch, 30.0), PathCourse::Arrives);
    let burst = Story::of(&held(&every(0.002, 5.0, 200))).busy(0.0, 12.0, 0.05);
    assert_ne!(course(&burst, 12.0), PathCourse::Arrives);
}

#[test]
fn a_saw_tooth_is_not_a_leak_wherever_it_is_cut_off() {
    let mut lives = Vec::new();
    for tooth in 0..4 {
        let from = f64::from(tooth) * 3.0;
        lives.extend(swept(&every(0.1, from + 0.2, 27), from + 2.9));
    }
    let story = Story::of(&lives);
    for until in [6.5, 7.0, 8.7, 9.5, 11.0, 11.8, 12.5] {
        assert_ne!(course(&story, until), PathCourse::Arrives, "{until}");
    }
}

#[test]
fn a_leak_among_many_that_are_closed_is_one() {
    let mut lives = held(&every(0.2, 1.0, 100));
    let brief = every(0.02, 0.5, 1000);
    lives.extend(brief.iter().map(|born| (*born, Some(born + 0.01))));
    assert_eq!(course(&Story::of(&lives), 22.0), PathCourse::Arrives);
    // One that was open from the first line to the last is not a habit.
    lives.push((0.1, Some(21.9)));
    assert_eq!(course(&Story::of(&lives), 22.0), PathCourse::Arrives);
}

#[test]
fn requests_that_are_served_as_the_end_comes_are_in_use() {
    let births = every(0.05, 0.5, 300);
    let lives: Vec<_> = births
        .iter()
        .map(|born| (*born, Some(born + 0.4)))
        .collect();
    let story = Story::of(&lives);
    for until in [3.0, 8.03, 15.47, 15.6, 16.0] {
        assert_ne!(course(&story, until), PathCourse::Arrives, "{until}");
    }
}

#[test]
fn connections_that_are_replaced_after_a_while_are_not_a_leak() {
    // Lifetimes of five seconds on average, some much longer.
    let births = every(0.1, 1.0, 200);
    let lives = births.iter().enumerate().map(|(nth, born)| {
        let share = (f64::from(u32::try_from(nth * 37 % 100).unwrap()) + 0.5) / 100.0;
        let end = born - 5.0 * (1.0 - share).ln();
        (*born, (end < 22.0).then_some(end))
    });
    let story = Story::of(&lives.collect::<Vec<_>>());
    assert_ne!(course(&story, 22.0), PathCourse::Arrives);
}

proptest! {
    /// Whatever load does to the pace, a leak is a leak, and a pool that was created at once is
    /// not.
    #[test]
    fn load_that_stretches_and_bunches_the_pace_does_not_change_the_verdict(
        stalls in prop::collection::vec((0.0_f64..15.0, 0.0_f64..0.8), 0..6),
        step in 0.08_f64..0.3,
        idle in 0.0_f64..30.0,
    ) {
        let delayed = |at: f64| {
            // A stalled process catches up: the missed arrivals come at once.
            let stall = stalls.iter().find(|(from, length)| at >= *from && at < from + length);
            stall.map_or(at, |(from, length)| from + length)
        };
        let count = 60;
        let mut births: Vec<f64> = every(step, 1.0, count).into_iter().map(delayed).collect();
        births.sort_by(f64::total_cmp);
        let last = births.last().copied().unwrap_or(0.0);
        let leak = Story::of(&held(&births));
        prop_assert_eq!(course(&leak, last + idle), PathCourse::Arrives);
        let tidy = Story::of(&swept(&births, last + 0.2));
        prop_assert_eq!(course(&tidy, last + 1.0), PathCourse::Arrives);
        let closed: Vec<_> = births.iter().map(|born| (*born, Some(born + 0.05))).collect();
        prop_assert_ne!(course(&Story::of(&closed), last + idle), PathCourse::Arrives);
    }

    /// No history panics.
    #[test]
    fn any_history_is_judged(
        lives in prop::collection::vec((0.0_f64..30.0, prop::option::of(0.0_f64..10.0)), 0..80),
        until in 0.0_f64..60.0,
    ) {
        let lives: Vec<_> = lives
            .into_iter()
            .map(|(born, lived)| (born, lived.map(|lived| born + lived)))
            .collect();
        course(&Story::of(&lives), until);
    }
}
