//! The host's warm interpreter: begun with the host, ended after its sessions.

use std::sync::Arc;

use fdguard_core::log_event::Event;

use super::Inner;
use crate::session::PYTHON_DRIVER;
use crate::warm::{Pool, find};

impl Inner {
    /// Begins it in the background, where one is wanted and there is a Python. One that cannot start is told, and sessions are started cold.
    pub(super) fn warm_python(self: &Arc<Self>) {
        let wanted = self.options.keeper.as_ref();
        let Some(keeper) = wanted.filter(|_| self.options.warm_python) else {
            return;
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let Some(python) = find("python3", &path) else {
            self.tell(Event::new("warm_python").with("error", "no python3"));
            return;
        };
        let pool = Arc::new(Pool::new(&python, keeper, PYTHON_DRIVER));
        self.hub.set_warm(Arc::clone(&pool));
        let host = Arc::clone(self);
        self.tasks.spawn(async move {
            let event = Event::new("warm_python");
            match pool.warm_up().await {
                Ok(()) => host.tell(event.with("ready", true)),
                Err(error) => host.tell(event.with("error", error.to_string())),
            }
        });
    }
}
