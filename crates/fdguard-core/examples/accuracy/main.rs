//! How often the judgement is wrong: simulated processes of every kind, watched and judged.
//!
//! `cargo run --release -p fdguard-core --example accuracy -- [PROCESSES A KIND [SEED [PART OF A
//! NAME]]]` prints the tables of docs/accuracy.md; with `traced` only that of traced processes,
//! with `cost` what a simulated month costs.

mod clean;
mod cost;
mod detection;
mod leaks;
mod measure;
mod random;
mod scenarios;
mod simulate;
mod source;
mod table;
mod traces;

use std::io::{self, Write as _};

/// How often a watch is judged before its end.
const JUDGED: u32 = 40;

fn main() -> io::Result<()> {
    if std::env::args()
        .nth(1)
        .is_some_and(|first| first == "traced")
    {
        return io::stdout().write_all(traces::table(400, 1).as_bytes());
    }
    if std::env::args().nth(1).is_some_and(|first| first == "cost") {
        return io::stdout().write_all(cost::month().as_bytes());
    }
    let mut args = std::env::args().skip(1);
    let each = args.next().and_then(|n| n.parse().ok()).unwrap_or(400);
    let seed = args.next().and_then(|n| n.parse().ok()).unwrap_or(1);
    let name = args.next().unwrap_or_default();
    let wrong = std::env::var_os("SHOW_WRONG").is_some();
    let mut outcomes = Vec::new();
    let kinds = scenarios::kinds().chain([&leaks::CLOCKWORK]);
    for kind in kinds.filter(|kind| kind.name.contains(&name)) {
        let mut show = |number, verdict| {
            if wrong {
                let line = format!("{} {number}: {verdict:?}\n", kind.name);
                drop(io::stderr().write_all(line.as_bytes()));
            }
        };
        let effort = measure::Effort {
            each,
            seed,
            judged: JUDGED,
        };
        outcomes.push(measure::one(kind, effort, &mut show));
    }
    io::stdout().write_all(table::kinds(&outcomes).as_bytes())?;
    if name.is_empty() {
        let text = detection::table(u64::from(each.min(50)), seed);
        io::stdout().write_all(format!("\n{text}").as_bytes())?;
        let text = traces::table(each, seed);
        io::stdout().write_all(format!("\n{text}").as_bytes())?;
    }
    Ok(())
}
