//! The host's warm interpreter: started beside everything else, so that the host itself is ready at once. Until it is warm, sessions start cold.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use fdguard_core::log_event::LogEvent;
use schemars::JsonSchema;
use serde::Serialize;

use super::Inner;
use crate::Error;
use crate::session::PYTHON_DRIVER;
use crate::warm::{WarmPool, find};

/// How the warm interpreter is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WarmHealth {
    /// Python sessions come from it.
    pub ready: bool,
    /// Why they are started cold, if they are and it is known.
    pub trouble: Option<String>,
}

/// The pool, once it is there, or why it never will be.
pub(super) type Warm = OnceLock<Result<Arc<WarmPool>, String>>;

impl Inner {
    /// The pool, when it is there.
    pub(super) fn pool(&self) -> Option<Arc<WarmPool>> {
        let pool = self.warm.get()?.as_ref();
        pool.ok().map(Arc::clone)
    }

    /// The keeper's program, when a pool is wanted.
    fn warm_keeper(&self) -> Option<&Path> {
        let keeper = self.options.keeper_program.as_deref();
        keeper.filter(|_| self.options.warm_python)
    }

    pub(super) fn warm_health(&self) -> Option<WarmHealth> {
        self.warm_keeper()?;
        let trouble = match self.warm.get() {
            None => Some("it is being started".to_owned()),
            Some(Ok(pool)) => pool.trouble(),
            Some(Err(error)) => Some(error.clone()),
        };
        Some(WarmHealth {
            ready: trouble.is_none(),
            trouble,
        })
    }

    /// Starts the pool, if one is wanted.
    pub(super) async fn warm_up(self: Arc<Self>) {
        let Some(keeper) = self.warm_keeper() else {
            return;
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let started = match find("python3", &path) {
            Some(python) => WarmPool::start(&python, keeper, PYTHON_DRIVER).await,
            None => Err(Error::Bad("there is no python3 in PATH".to_owned())),
        };
        let event = match &started {
            Ok(_) => LogEvent::new("warm_ready"),
            Err(error) => LogEvent::new("warm_failed").with("error", error.to_string()),
        };
        self.tell(event);
        let started = started.map(Arc::new).map_err(|error| error.to_string());
        // It is set once, here.
        let _first = self.warm.set(started);
    }

    /// Ends it, after the sessions that were forked from it.
    pub(super) async fn cool_down(&self) {
        if let Some(pool) = self.pool() {
            pool.close().await;
        }
    }
}
