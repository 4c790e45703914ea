//! What the loop has to tell, and where it goes.

mod sink;

pub use fdguard_core::log_event::{LogEvent, LogValue};
pub use sink::{EventFormat, EventSink};
