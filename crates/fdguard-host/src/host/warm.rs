//! The host's warm interpreter, started in the background so that the host is ready immediately.
//! Until it is warm, sessions start cold.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use fdguard_core::log_event::LogEvent;
use schemars::JsonSchema;
use serde::Serialize;

use super::Inner;
use crate::Error;
use crate::session::PYTHON_DRIVER;
use crate::warm::{WarmPool, find};

/// State of the warm interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WarmHealth {
    /// New Python sessions are forked from it.
    pub ready: bool,
    /// Why Python sessions start cold; `null` when they do not or the reason is unknown.
    pub trouble: Option<String>,
}

/// The pool, once it is there, or why it never will be.
pub(super) type Warm = OnceLock<Result<Arc<WarmPool>, String>>;

impl Inner {
    /// The pool, once it exists.
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
            None => Some("starting".to_owned()),
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
            None => Err(Error::Bad("python3 not found in PATH".to_owned())),
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
