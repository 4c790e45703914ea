use proptest::prelude::*;

use super::{Closed, Course, course};

/// A place whose descriptors live as told: (born, lived), without an end when it was never closed.
#[derive(Clone, Debug, Default)]
struct Story {
    births: Vec<f64>,
    closed: Closed,
}

impl Story {
    fn of(lives: &[(f64, Option<f64>)]) -> Self {
        let mut story = Self::default();
        for (born, lived) in lives {
            match lived {
                None => story.births.push(*born),
                Some(lived) => {
                    let closed = &mut story.closed;
                    closed.count += 1;
                    closed.born += born;
                    closed.lived += lived;
                    closed.longest = closed.longest.max(*lived);
                    closed.youngest = closed.youngest.max(*born);
                }
            }
        }
        if story.closed.count > 0 {
            let count = crate::count::as_f64(story.closed.count);
            story.closed.born /= count;
            story.closed.lived /= count;
        }
        story.births.sort_by(f64::total_cmp);
        story
    }

    fn course(&self, lived: f64) -> Course {
        course(lived, &self.births, &self.closed)
    }
}

/// Each is closed when `cap` younger ones have come.
fn cache(births: &[f64], cap: usize) -> Vec<(f64, Option<f64>)> {
    let end = |at: usize| births.get(at + cap).map(|end| end - births[at]);
    let lives = births.iter().enumerate();
    lives.map(|(at, born)| (*born, end(at))).collect()
}

fn held(births: &[f64]) -> Vec<(f64, Option<f64>)> {
    births.iter().map(|born| (*born, None)).collect()
}

fn every(step: f64, from: f64, count: u32) -> Vec<f64> {
    let births = (0..count).map(|at| from + f64::from(at) * step);
    births.collect()
}

#[test]
fn r13_a_loop_for_each_call_under_load_is_a_leak_although_it_looked_like_a_warm_up() {
    // py-httpx-loop-per-call: four a second from 2.4 s on, three descriptors each, and a slow end.
    let births: Vec<f64> = every(0.25, 2.4, 80).repeat(3);
    let story = Story::of(&held(&births));
    assert_eq!(story.course(22.5), Course::Arrives);
    assert_eq!(
        story.course(26.0),
        Course::Arrives,
        "a silent end of 3.6 s was taken for a pool that is full"
    );
    // The beginning was held up, and the rest caught up with the clock.
    let late: Vec<f64> = births.iter().map(|born| born.max(9.0)).collect();
    assert_eq!(Story::of(&held(&late)).course(23.0), Course::Arrives);
}

#[test]
fn r15_a_cache_of_files_under_load_that_has_hardly_begun_to_replace_is_known() {
    // py-lru-files: two hundred files, and so slow a machine that only few were replaced.
    for replaced in [2, 3, 10, 34, 49, 110, 220] {
        let births = every(20.0 / f64::from(200 + replaced), 1.0, 200 + replaced);
        let story = Story::of(&cache(&births, 200));
        assert_eq!(story.closed.count, u64::from(replaced));
        assert_eq!(story.course(22.5), Course::Rolls, "{replaced} replaced");
        // As many opened and closed, but the first ones, and only when the program ended.
        let mut lives = held(&births);
        for (born, lived) in lives.iter_mut().take(3) {
            *lived = Some(22.4 - *born);
        }
        assert_eq!(Story::of(&lives).course(22.5), Course::Arrives);
    }
}

#[test]
fn a_pool_that_is_full_has_stopped_on_a_slow_machine_too() {
    for fills in [4.0, 6.0, 9.0, 12.0] {
        let births = every(fills / 50.0, 1.5, 50);
        let story = Story::of(&held(&births));
        assert_eq!(story.course(22.5), Course::Stopped, "{fills} s to fill");
    }
    let at_once = Story::of(&held(&every(0.001, 0.2, 50)));
    assert_eq!(at_once.course(22.5), Course::Stopped);
}

#[test]
fn a_leak_among_many_that_are_closed_is_one() {
    let mut lives = held(&every(0.2, 1.0, 100));
    lives.extend(
        every(0.02, 0.5, 1000)
            .iter()
            .map(|born| (*born, Some(0.01))),
    );
    assert_eq!(Story::of(&lives).course(22.0), Course::Arrives);
    // One that was open from the first line to the last is no habit.
    lives.push((0.1, Some(21.8)));
    assert_eq!(Story::of(&lives).course(22.0), Course::Arrives);
    // It began well only.
    let mut lives = held(&every(0.2, 1.5, 100));
    lives.extend(
        every(0.001, 0.5, 100)
            .iter()
            .map(|born| (*born, Some(0.01))),
    );
    assert_eq!(Story::of(&lives).course(22.0), Course::Arrives);
}

#[test]
fn what_is_replaced_after_a_while_in_no_order_is_no_leak() {
    // Lives of five seconds on the average, as by chance.
    let lives = every(0.1, 0.5, 220)
        .into_iter()
        .enumerate()
        .map(|(at, born)| {
            let share = ((at * 37 % 101) as f64 + 0.5) / 101.0;
            let lived = -5.0 * share.ln();
            (born, (born + lived < 22.5).then_some(lived))
        });
    let story = Story::of(&lives.collect::<Vec<_>>());
    assert!(story.births.len() > 20 && story.closed.count > 100);
    assert_ne!(story.course(22.5), Course::Arrives);
}

#[test]
fn bursts_and_what_fades_are_not_called_a_leak() {
    let mut bursts = every(0.01, 1.0, 40);
    bursts.extend(every(0.01, 19.0, 40));
    assert_eq!(Story::of(&held(&bursts)).course(22.0), Course::Unclear);
    // A file for each of a hundred names, in the order of chance: fewer and fewer are new.
    let names = (1..100_u32).map(|n| -5.0 * (1.0 - f64::from(n) / 100.0).ln() + 0.5);
    let fading: Vec<f64> = names.filter(|born| *born < 20.0).collect();
    assert_ne!(Story::of(&held(&fading)).course(20.5), Course::Arrives);
    assert_eq!(Story::default().course(20.0), Course::Unclear);
}

#[test]
fn one_that_was_forgotten_among_many_does_not_pass_for_the_last_of_a_cache() {
    let mut lives: Vec<_> = every(0.01, 0.0, 99)
        .iter()
        .map(|born| (*born, Some(0.005)))
        .collect();
    lives.push((0.6, None));
    assert_eq!(Story::of(&lives).course(1.0), Course::Unclear);
    lives.pop();
    lives.push((0.99, None));
    assert_eq!(Story::of(&lives).course(1.0), Course::Rolls);
}

/// Births as a machine gives them that others keep busy: each may be late, and now and then all stands still.
fn jittered(step: f64, count: usize) -> impl Strategy<Value = Vec<f64>> {
    let late = prop::collection::vec(0.0..4.0 * step, count);
    let stalls = prop::collection::vec((0..count, 0.0..1.5_f64), 0..4);
    (late, stalls).prop_map(move |(late, stalls)| {
        let mut births: Vec<f64> = Vec::with_capacity(count);
        for (at, late) in late.iter().enumerate() {
            let due = 1.5 + crate::count::as_f64(at as u64) * step + late;
            let held_up: f64 = stalls
                .iter()
                .filter(|(from, _)| *from <= at)
                .map(|(_, long)| *long)
                .sum();
            births.push(due + held_up);
        }
        births.sort_by(f64::total_cmp);
        births
    })
}

fn last(births: &[f64]) -> f64 {
    births.last().copied().unwrap_or(0.0)
}

proptest! {
    #[test]
    fn r38_a_leak_is_one_however_uneven_its_times(births in jittered(0.25, 80), end in 0.5..5.0_f64) {
        let story = Story::of(&held(&births));
        prop_assert_eq!(story.course(last(&births) + end), Course::Arrives);
    }

    #[test]
    fn r38_a_leak_beside_good_use_is_one_however_uneven_its_times(births in jittered(0.2, 100), end in 0.5..4.0_f64, usual in 0.001..0.3_f64) {
        let mut lives = held(&births);
        lives.extend(births.iter().flat_map(|born| [(*born, Some(usual)), (born + 0.05, Some(usual / 2.0))]));
        prop_assert_eq!(Story::of(&lives).course(last(&births) + end), Course::Arrives);
    }

    #[test]
    fn r38_a_cache_is_one_however_uneven_its_times(births in jittered(0.05, 400), cap in 20..390_usize, end in 0.0..8.0_f64) {
        let story = Story::of(&cache(&births, cap));
        prop_assert_eq!(story.course(last(&births) + end), Course::Rolls);
    }

    #[test]
    fn r38_a_pool_is_full_however_unevenly_it_filled(births in jittered(0.12, 50), more in 1.0..3.0_f64) {
        // As long again as it took, or up to three times so long.
        let took = last(&births) - births.first().copied().unwrap_or(0.0);
        let story = Story::of(&held(&births));
        prop_assert_eq!(story.course(last(&births) + more * took), Course::Stopped);
    }
}
