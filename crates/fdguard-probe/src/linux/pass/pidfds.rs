//! The state of the processes behind process handles.

use std::collections::HashMap;

use fdguard_core::{Detail, Pid, Text};

use super::Context;
use crate::linux::table::TableDraft;

/// Adds command and state to process handles.
pub(super) fn describe(context: &Context<'_>, table: &mut TableDraft) {
    let mut known: HashMap<Pid, Option<(Text, bool)>> = HashMap::new();
    for entry in &mut table.entries {
        let Detail::Pidfd(pidfd) = &mut entry.detail else {
            continue;
        };
        let Some(pid) = pidfd.pid else { continue };
        let read = || context.probe.name_and_state(pid);
        let state = known.entry(pid).or_insert_with(read);
        // fdinfo named it a moment ago: if it no longer exists, it exited and was reaped.
        pidfd.alive = Some(state.as_ref().is_some_and(|(_, zombie)| !zombie));
        pidfd.command = state.as_ref().map(|(command, _)| command.clone());
        if let Some(command) = &pidfd.command {
            entry.target =
                Text::from([format!("pid {pid} ").as_bytes(), command.as_bytes()].concat());
        }
    }
}
