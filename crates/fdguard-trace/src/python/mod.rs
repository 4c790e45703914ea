//! Python's frames as the hook has written them, and line tables that were fetched from another
//! process.

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "for tables from other processes")
)]
#[path = "../../../fdguard-preload/src/python/linetable.rs"]
mod linetable;
mod record;

pub(crate) use record::Stack;
