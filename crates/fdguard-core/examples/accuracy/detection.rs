//! How long it takes to detect a leak.

use std::fmt::Write as _;

use super::measure::seconds_to_detection;
use super::table::at;

/// Seconds until a drip under a tide is found, by its rate and by the time between two looks.
pub(crate) fn table(each: u64, seed: u64) -> String {
    let mut text = String::from(
        "| descriptors a second | every 250 ms | every 500 ms | every second |\n| --- | --- | --- | --- |\n",
    );
    for rate in [0.05, 0.2, 0.5, 2.0, 10.0, 50.0] {
        let cells = [0.25, 0.5, 1.0].map(|every| {
            let seeds = seed..seed + each;
            let mut found: Vec<f64> = seeds
                .filter_map(|seed| seconds_to_detection(rate, every, seed))
                .collect();
            found.sort_by(f64::total_cmp);
            let missed = each - found.len() as u64;
            let cell = format!("{:.0} / {:.0} s", at(&found, 0.5), at(&found, 0.95));
            if missed > 0 {
                format!("{cell}, {missed} of {each} missed")
            } else {
                cell
            }
        });
        let _ = writeln!(text, "| {rate} | {} |", cells.join(" | "));
    }
    text
}
