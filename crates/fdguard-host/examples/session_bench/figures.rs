//! Figures and how they are printed.

use std::time::Duration;

/// Prints a row of times in milliseconds.
pub(crate) fn times(name: &str, times: &[Duration]) {
    let ms: Vec<f64> = times
        .iter()
        .map(|time| time.as_secs_f64() * 1000.0)
        .collect();
    row(name, ms);
}

/// Prints the median of a row, its minimum and maximum, and its length.
pub(crate) fn row(name: &str, mut figures: Vec<f64>) {
    figures.sort_by(f64::total_cmp);
    let at = |place: usize| figures.get(place).copied().unwrap_or(f64::NAN);
    let (count, middle) = (figures.len(), at(figures.len() / 2));
    let (least, most) = (at(0), at(count.saturating_sub(1)));
    say(&format!(
        "{{\"name\": \"{name}\", \"median\": {middle:.4}, \"min\": {least:.4}, \"max\": {most:.4}, \"n\": {count}}}"
    ));
}

/// Prints one number.
pub(crate) fn one(name: &str, figure: f64) {
    row(name, vec![figure]);
}

/// The open descriptors of this process, without the one that lists them.
pub(crate) fn descriptors() -> std::io::Result<i32> {
    let count = std::fs::read_dir("/proc/self/fd")?.count();
    Ok(i32::try_from(count).unwrap_or(i32::MAX) - 1)
}

/// Resident memory in KiB: now (`VmRSS`) or at its most (`VmHWM`).
pub(crate) fn memory(field: &str) -> std::io::Result<i32> {
    let status = std::fs::read("/proc/self/status")?;
    let number = fdguard_proc::status::number_of(&status, field.as_bytes());
    let number = number.and_then(|number| i32::try_from(number).ok());
    number.ok_or_else(|| std::io::Error::other(format!("no {field} in /proc/self/status")))
}

#[expect(clippy::print_stdout, reason = "a program that prints figures")]
fn say(line: &str) {
    println!("{line}");
}
