use super::super::testing::{Story, every, held};
use super::{JudgedSite, NamedPath, sites};
use crate::origin::{Frame, Language, Stack};

fn frame(file: &str, line: u32) -> Frame {
    Frame {
        file: Some(file.into()),
        function: Some("f".to_owned()),
        line: Some(line),
        module: None,
        language: Language::Python,
    }
}

fn path(lines: &[u32], story: &Story) -> NamedPath {
    let stack: Stack = lines
        .iter()
        .map(|line| frame("/srv/app.py", *line))
        .collect();
    NamedPath {
        stack,
        history: story.history(20.0),
    }
}

fn closed_soon() -> Story {
    let births = every(0.1, 0.5, 190);
    let lives: Vec<_> = births
        .iter()
        .map(|born| (*born, Some(born + 0.02)))
        .collect();
    Story::of(&lives)
}

#[test]
fn of_two_callers_of_one_helper_only_the_one_that_forgets_leaks() {
    let leak = path(&[5, 30], &Story::of(&held(&every(0.5, 1.0, 38))));
    let good = path(&[5, 40], &closed_soon());
    // Something that the same line opened once, at the start, and keeps.
    let kept = path(&[5, 50], &Story::of(&held(&[0.2])));
    let found = sites(vec![good, kept, leak]);
    assert_eq!(found.len(), 1);
    let site = &found[0];
    assert!(site.is_leaking());
    assert_eq!(site.survivors().len(), 38);
    assert_eq!((site.opened(), site.closed(), site.live()), (229, 190, 39));
    let caller = site.leaking_caller.as_ref().unwrap();
    assert_eq!(caller.line, Some(30));
    assert_eq!(site.leaking().count(), 1);
}

#[test]
fn a_line_that_renews_what_another_created_does_not_leak() {
    let births = every(0.8, 1.0, 23);
    let renew = |ends: &[f64]| {
        let pool = every(0.001, 0.2, 30);
        let ends = ends
            .iter()
            .map(|end| Some(*end))
            .chain(std::iter::repeat(None));
        let pool: Vec<_> = pool.into_iter().rev().zip(ends).collect();
        let work = |story: Story| story.busy(0.0, 20.0, 0.05);
        let found = sites(vec![
            path(&[5], &work(Story::of(&pool))),
            path(&[9], &work(Story::of(&held(&births)))),
        ]);
        found.iter().any(JudgedSite::is_leaking)
    };
    assert!(
        !renew(&births),
        "each new one takes the place of an old one"
    );
    assert!(renew(&[]), "nothing was closed");
    assert!(renew(&every(0.001, 1.0, 23)), "the pool was closed at once");
    assert!(renew(&every(1.6, 1.0, 11)), "half of them were closed");
}

#[test]
fn callers_that_leak_a_few_each_show_it_together() {
    let paths = (0..10).map(|caller| {
        let births: Vec<f64> = (0..3)
            .map(|nth| 1.0 + f64::from(caller) * 0.6 + f64::from(nth) * 6.0)
            .collect();
        // The process has one clock: something happens all the time.
        let story = Story::of(&held(&births)).busy(0.0, 20.0, 0.05);
        path(&[5, 100 + caller], &story)
    });
    let found = sites(paths.collect());
    assert_eq!(found[0].survivors().len(), 30);
}

#[test]
fn the_way_through_a_library_makes_no_other_path() {
    let library = frame("/usr/lib/python3.11/io.py", 7);
    let mut first = path(&[5, 30], &Story::of(&held(&[0.5])));
    first.stack.insert(0, library);
    let rest = path(&[5, 30], &Story::of(&held(&every(0.5, 1.0, 38))));
    let found = sites(vec![first, rest]);
    assert_eq!((found.len(), found[0].paths.len()), (1, 1));
    assert_eq!(found[0].survivors().len(), 39);
}
