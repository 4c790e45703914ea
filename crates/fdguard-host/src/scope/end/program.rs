//! Ends a program that the scope started: done when its keeper has reaped the last process.

use fdguard_probe::Probe;
use fdguard_process::tree::StopPlan;
use tokio::time::timeout;

use super::super::clean_up::{CleanUpAction, ResourceDetails};
use super::super::program::{Over, Program, words};
use super::{Around, ScopeEnd, too_long};

const TERM: i32 = 15;
const KILL: i32 = 9;

pub(in crate::scope) async fn end_program(program: &Program, around: &Around) -> ScopeEnd {
    let was_over = program.state().over.is_some();
    let limit = around.how.limit;
    let polite = StopPlan {
        signal: TERM,
        grace: around.how.grace.min(limit / 2),
    };
    program.ask(polite);
    if let Ok((exit, over)) = timeout(limit, program.over()).await {
        return ended(exit.map(words), over, was_over);
    }
    // The second attempt kills without asking.
    program.ask(StopPlan {
        signal: KILL,
        grace: std::time::Duration::ZERO,
    });
    let first = vec![too_long(limit)];
    match timeout(limit, program.over()).await {
        Ok((exit, over)) => ended(exit.map(words), over, was_over).after(first),
        Err(_elapsed) => survived(program.keeper()).await.after(first),
    }
}

fn ended(exit: Option<String>, over: Over, was_over: bool) -> ScopeEnd {
    match over {
        Over::Empty { killed, reaped } => {
            let did = if was_over {
                CleanUpAction::Absent
            } else {
                CleanUpAction::Ended
            };
            ScopeEnd::fine(did).with(ResourceDetails {
                survivors: Some(Vec::new()),
                killed: Some(killed),
                reaped: Some(reaped),
                exit,
                ..ResourceDetails::default()
            })
        }
        // The keeper was killed or stopped: the host killed everything below it and found nothing
        // more.
        Over::Lost { left: Some(0) } => {
            ScopeEnd::fine(CleanUpAction::Ended).with(ResourceDetails {
                survivors: Some(Vec::new()),
                exit,
                ..ResourceDetails::default()
            })
        }
        Over::Lost { left } => {
            let mut end = match left {
                Some(left) => {
                    ScopeEnd::failed(format!("{left} of its processes could not be killed"))
                }
                None => ScopeEnd::failed(
                    "its keeper was killed: all known processes were killed, but others may be left",
                ),
            };
            end.did = CleanUpAction::Ended;
            end.with(ResourceDetails {
                exit,
                ..ResourceDetails::default()
            })
        }
    }
}

/// Names the processes still running below the keeper. The keeper stays with them.
async fn survived(keeper: u32) -> ScopeEnd {
    let look = move || -> Option<Vec<u32>> {
        let below = Probe::new().ok()?.tree(keeper).ok()?;
        Some(below.into_iter().filter(|pid| *pid != keeper).collect())
    };
    let survivors = tokio::task::spawn_blocking(look).await.ok().flatten();
    ScopeEnd::failed("some of its processes could not be killed").with(ResourceDetails {
        survivors,
        ..ResourceDetails::default()
    })
}
