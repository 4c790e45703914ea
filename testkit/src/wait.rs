//! Waiting for what no line, end of file or pidfd announces.

use std::time::{Duration, Instant};

/// Longer than anything that a test waits for takes on a loaded machine.
const LONGEST: Duration = Duration::from_secs(60);

/// The first pause between two looks: short, because what a test waits for may last no longer.
const FIRST: Duration = Duration::from_micros(100);

/// The longest pause: a test that waits takes no processor from the program that it waits for.
const LAST: Duration = Duration::from_millis(20);

/// Looks again and again until there is something, and returns it. Panics after a minute, with what
/// the test waited for.
#[track_caller]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    let mut pause = FIRST;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < LONGEST, "not within a minute: {what}");
        std::thread::sleep(pause);
        pause = (pause * 5 / 4).min(LAST);
    }
}

/// The same for a condition.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}
