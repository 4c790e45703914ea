//! Log events and their sink.

mod sink;

pub use fdguard_core::log_event::{Event, Value};
pub use sink::{Form, Sink};
