//! Log events and their sink.

mod sink;

pub use fdguard_core::log_event::{LogEvent, LogValue};
pub use sink::{EventFormat, EventSink};
