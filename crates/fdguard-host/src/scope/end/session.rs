//! Ends a session through the host and waits for its receipt.

use tokio::time::timeout;

use super::super::clean_up::{CleanUpAction, CloseReason, ResourceDetails};
use super::{Around, ScopeEnd, too_long};
use crate::Error;
use crate::receipt::{Receipt, SessionEndReason};

pub(in crate::scope) async fn end_session(id: &str, around: &Around) -> ScopeEnd {
    match once(id, around).await {
        Ok(end) => end,
        Err(first) => match once(id, around).await {
            Ok(end) => end.after(vec![first]),
            Err(second) => ScopeEnd::failed(first).after(Vec::new()).plus(second),
        },
    }
}

impl ScopeEnd {
    fn plus(mut self, error: String) -> Self {
        self.errors.push(error);
        self
    }
}

async fn once(id: &str, around: &Around) -> Result<ScopeEnd, String> {
    let host = around.means.host.as_ref();
    let host = host.ok_or("sessions are not available")?;
    let limit = around.how.limit;
    match timeout(limit, host.close(id, reason(around.why))).await {
        Err(_elapsed) => Err(too_long(limit)),
        Ok(Ok(receipt)) => Ok(ended(receipt)),
        Ok(Err(Error::Unknown { .. } | Error::Ended { .. })) => {
            Ok(ScopeEnd::fine(CleanUpAction::Absent))
        }
        Ok(Err(error)) => Err(error.to_string()),
    }
}

/// A receipt without the number of survivors proves nothing.
fn ended(receipt: Receipt) -> ScopeEnd {
    let is_gone = receipt.survivors == Some(0);
    // The host keeps the receipt of a session that ended earlier.
    let was_gone = receipt.reason == SessionEndReason::ProgramEnded;
    let mut end = ScopeEnd::fine(if was_gone {
        CleanUpAction::Absent
    } else {
        CleanUpAction::Ended
    });
    end.ok = is_gone;
    if !is_gone {
        let why = receipt.survivors.map_or_else(
            || "unknown whether any of its processes are still running".to_owned(),
            |count| format!("{count} of its processes are still running"),
        );
        end.errors.push(why);
        end.errors.extend(receipt.errors.iter().cloned());
    }
    end.with(ResourceDetails {
        survivors: is_gone.then(Vec::new),
        killed: receipt.killed,
        reaped: receipt.reaped,
        exit: receipt.exit.clone(),
        session: Some(receipt),
        ..ResourceDetails::default()
    })
}

fn reason(why: CloseReason) -> SessionEndReason {
    match why {
        CloseReason::Idle => SessionEndReason::Idle,
        CloseReason::ClientGone | CloseReason::OwnerGone => SessionEndReason::ClientGone,
        CloseReason::Shutdown | CloseReason::HostGone => SessionEndReason::Shutdown,
        CloseReason::StartFailed => SessionEndReason::StartFailed,
        CloseReason::Asked | CloseReason::AskedFromInside | CloseReason::Ended => {
            SessionEndReason::Asked
        }
    }
}
