//! Subscribers to host events.

use std::fmt;
use std::sync::Arc;

use fdguard_core::log_event::LogEvent;

type Hear = dyn Fn(&LogEvent) + Send + Sync;

/// The subscriber of events; none by default. It must not block: it is called by the threads that
/// serve all sessions.
#[derive(Clone, Default)]
pub struct Events(Option<Arc<Hear>>);

impl Events {
    /// Delivers events to this function.
    #[must_use]
    pub fn to(hear: impl Fn(&LogEvent) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hear)))
    }

    /// Emits an event.
    pub fn tell(&self, event: &LogEvent) {
        if let Some(hear) = &self.0 {
            hear(event);
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heard = if self.0.is_some() { "heard" } else { "unheard" };
        f.debug_tuple("Events").field(&heard).finish()
    }
}
