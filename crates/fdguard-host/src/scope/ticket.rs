//! A close that somebody inside of the scope asked for: it gets its answer first, and everybody can read the result later.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{CleanUp, CloseLimits, CloseReason, Scope};
use crate::{Error, random};

/// The answer to who asks for its own end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AcceptedClose {
    /// Which scope will be closed.
    pub scope: String,
    /// When that begins, RFC 3339.
    pub ends_at: String,
    /// What the result is read by later.
    pub ticket: String,
}

/// What a ticket says.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum CloseTicket {
    /// Not done yet.
    Pending(AcceptedClose),
    /// Done.
    Done {
        /// What it came to.
        result: Arc<CleanUp>,
    },
}

impl Scope {
    /// Says when it will be closed, and closes it then, in a task of its own. A second call gives the first answer again.
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
                ticket: random::id()?,
            };
            state.ticket = Some(accepted.clone());
            accepted
        };
        // It holds the scope: an owner that goes away meanwhile does not make it earlier, and the reason stays true.
        let scope = Arc::clone(self);
        drop(self.runtime.spawn(async move {
            tokio::time::sleep(after).await;
            scope.begin_close(CloseReason::AskedFromInside, how);
        }));
        Ok(accepted)
    }

    /// What its ticket says.
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
