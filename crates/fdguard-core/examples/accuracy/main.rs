//! How often the judgement is wrong: made-up processes of every kind, watched and judged.
//!
//! `cargo run --release -p fdguard-core --example accuracy -- [PROCESSES A KIND]`

mod measure;
mod scenarios;
mod simulate;

fn main() {
    let each = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(400);
    let seed = std::env::args()
        .nth(2)
        .and_then(|n| n.parse().ok())
        .unwrap_or(1);
    print!("{}", measure::table(&measure::all(each, seed)));
}
