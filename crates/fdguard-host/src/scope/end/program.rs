//! Ends a program that the scope started: done when its keeper has reaped the last process.

use fdguard_probe::Probe;
use fdguard_process::tree::Stop;
use tokio::time::timeout;

use super::super::clean_up::{Details, Did};
use super::super::program::{Over, Program, words};
use super::{Around, End, too_long};

const TERM: i32 = 15;
const KILL: i32 = 9;

pub(in crate::scope) async fn end_program(program: &Program, around: &Around) -> End {
    let was_over = program.state().over.is_some();
    let limit = around.how.limit;
    let polite = Stop {
        signal: TERM,
        grace: around.how.grace.min(limit / 2),
    };
    program.ask(polite);
    if let Ok((exit, over)) = timeout(limit, program.over()).await {
        return ended(exit.map(words), over, was_over);
    }
    // The second attempt kills without asking.
    program.ask(Stop {
        signal: KILL,
        grace: std::time::Duration::ZERO,
    });
    let first = vec![too_long(limit)];
    match timeout(limit, program.over()).await {
        Ok((exit, over)) => ended(exit.map(words), over, was_over).after(first),
        Err(_elapsed) => survived(program.keeper()).await.after(first),
    }
}

fn ended(exit: Option<String>, over: Over, was_over: bool) -> End {
    match over {
        Over::Empty { killed, reaped } => {
            let did = if was_over { Did::Absent } else { Did::Ended };
            End::fine(did).with(Details {
                survivors: Some(Vec::new()),
                killed: Some(killed),
                reaped: Some(reaped),
                exit,
                ..Details::default()
            })
        }
        // The keeper was killed or stopped: the host killed everything below it and found nothing
        // more.
        Over::Lost { left: Some(0) } => End::fine(Did::Ended).with(Details {
            survivors: Some(Vec::new()),
            exit,
            ..Details::default()
        }),
        Over::Lost { left } => {
            let mut end = match left {
                Some(left) => End::failed(format!("{left} of its processes could not be killed")),
                None => End::failed(
                    "its keeper was killed: all known processes were killed, but others may be left",
                ),
            };
            end.did = Did::Ended;
            end.with(Details {
                exit,
                ..Details::default()
            })
        }
    }
}

/// Names the processes still running below the keeper. The keeper stays with them.
async fn survived(keeper: u32) -> End {
    let look = move || -> Option<Vec<u32>> {
        let below = Probe::new().ok()?.tree(keeper).ok()?;
        Some(below.into_iter().filter(|pid| *pid != keeper).collect())
    };
    let survivors = tokio::task::spawn_blocking(look).await.ok().flatten();
    End::failed("some of its processes could not be killed").with(Details {
        survivors,
        ..Details::default()
    })
}
