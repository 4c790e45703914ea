//! What to watch and how often.

use std::time::Duration;

use fdguard_diagnose::watching::{OnSignal, WatchPlan};
use fdguard_probe::Probe;

use crate::cli::{GroupArgs, Selection, WatchArgs};
use crate::command::pick;
use crate::exit::HintedError;

/// The interval between looks without a given length.
const LONG: Duration = Duration::from_secs(300);
/// The interval between looks in the live view.
const SHOWN: Duration = Duration::from_secs(1);
/// Looks that a watch of known length should have.
const LOOKS: u32 = 80;
/// And the shortest time between them.
const SHORTEST: Duration = Duration::from_millis(250);
/// From this interval on looks are spread, so that many watches do not look in step.
const SPREAD_FROM: Duration = Duration::from_secs(60);

pub(super) fn plan(args: &WatchArgs, probe: &Probe, is_shown: bool) -> anyhow::Result<WatchPlan> {
    let (pids, name, groups, tree) = match args.select.selection() {
        Some(Selection::Some {
            pids,
            name,
            groups,
            tree,
        }) => (pids, name, pick::groups(probe, &groups)?, tree),
        Some(Selection::All) => {
            let hint = "use `fdguard top` to watch every process on the host";
            return Err(HintedError::usage("watch does not support --all", hint).into());
        }
        None => {
            let hint =
                "give a PID, --name NAME or --from FILE; use `fdguard top` to watch all processes";
            return Err(HintedError::usage("no process given", hint).into());
        }
    };
    // Fail at once if no process has the name.
    if name.is_some() {
        let named = Selection::Some {
            pids: Vec::new(),
            name: name.clone(),
            groups: GroupArgs::default(),
            tree: false,
        };
        pick::pick(probe, &named)?;
    }
    let every = args.every.unwrap_or_else(|| every(args.length, is_shown));
    Ok(WatchPlan {
        pids,
        name,
        groups,
        tree,
        every,
        jitter: args.jitter.unwrap_or_else(|| jitter(every)).min(every),
        length: args.length,
        on_signal: OnSignal::End,
    })
}

fn every(length: Option<Duration>, is_shown: bool) -> Duration {
    match length {
        Some(length) => (length / LOOKS).clamp(SHORTEST, LONG),
        None if is_shown => SHOWN,
        None => LONG,
    }
}

fn jitter(every: Duration) -> Duration {
    if every >= SPREAD_FROM {
        every / 10
    } else {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{every, jitter};

    #[test]
    fn r11_a_long_watch_looks_every_300_seconds_give_or_take_30() {
        assert_eq!(every(None, false), Duration::from_secs(300));
        assert_eq!(jitter(Duration::from_secs(300)), Duration::from_secs(30));
    }

    #[test]
    fn a_short_watch_looks_often_and_without_jitter() {
        assert_eq!(
            every(Some(Duration::from_secs(20)), false),
            Duration::from_millis(250)
        );
        assert_eq!(
            every(Some(Duration::from_secs(3)), false),
            Duration::from_millis(250)
        );
        assert_eq!(
            every(Some(Duration::from_secs(600)), true),
            Duration::from_millis(7500)
        );
        assert_eq!(every(None, true), Duration::from_secs(1));
        assert_eq!(jitter(Duration::from_secs(1)), Duration::ZERO);
    }
}
