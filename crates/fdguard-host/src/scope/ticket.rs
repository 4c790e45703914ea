//! A close requested from inside the scope: the caller gets a ticket first, and the result can be
//! read later.

use std::sync::Arc;
use std::time::Duration;

use fdguard_process::random;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{CleanUp, CloseLimits, CloseReason, Scope};
use crate::Error;

/// Answer to a process that closes its own scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AcceptedClose {
    /// Scope id.
    pub scope: String,
    /// When the close starts, RFC 3339.
    pub ends_at: String,
    /// Ticket for reading the result later.
    pub ticket: String,
}

/// State of a ticket.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum CloseTicket {
    /// The close has not finished.
    Pending(AcceptedClose),
    /// The close has finished.
    Done {
        /// Result of the close.
        result: Arc<CleanUp>,
    },
}

impl Scope {
    /// Returns when it will be closed, and closes it then, in its own task. A second call returns
    /// the first answer again.
    pub fn close_soon(
        self: &Arc<Self>,
        after: Duration,
        how: CloseLimits,
    ) -> Result<AcceptedClose, Error> {
        let accepted = {
            let mut state = self.state();
            if let Some(accepted) = &state.ticket {
                return Ok(accepted.clone());
            }
            let accepted = AcceptedClose {
                scope: self.id.clone(),
                ends_at: later(after).to_string(),
                ticket: random::id().map_err(Error::random)?,
            };
            state.ticket = Some(accepted.clone());
            accepted
        };
        // It holds the scope: if its owner disconnects meanwhile, the scope is not closed earlier,
        // and the reason stays correct.
        let scope = Arc::clone(self);
        drop(self.runtime.spawn(async move {
            tokio::time::sleep(after).await;
            scope.begin_close(CloseReason::AskedFromInside, how);
        }));
        Ok(accepted)
    }

    /// State of its ticket.
    #[must_use]
    pub fn ticket(&self) -> Option<CloseTicket> {
        let accepted = self.state().ticket.clone()?;
        Some(match self.result() {
            Some(result) => CloseTicket::Done { result },
            None => CloseTicket::Pending(accepted),
        })
    }
}

fn later(after: Duration) -> Timestamp {
    let now = Timestamp::now();
    jiff::SignedDuration::try_from(after)
        .ok()
        .and_then(|after| now.checked_add(after).ok())
        .unwrap_or(Timestamp::MAX)
}
