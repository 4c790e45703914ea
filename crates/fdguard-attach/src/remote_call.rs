//! What a call reports.

use std::time::Duration;

/// A function was called inside the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteCall {
    /// What the function returned.
    pub returned: i32,
    /// The longest time that a thread did not do its own work.
    pub stop: Duration,
    /// The sum of all such times: memory is prepared and removed in stops of their own.
    pub stop_total: Duration,
    /// How often a thread was stopped.
    pub stops: u32,
    /// How often fdguard waited in these stops until the thread had done something.
    pub waits: u32,
    /// The borrowed thread.
    pub thread: u32,
    /// How often threads were stopped to find one that can be borrowed, including this one.
    pub tries: u32,
}
