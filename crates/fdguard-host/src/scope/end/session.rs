//! Ends a session through the host and waits for its receipt.

use tokio::time::timeout;

use super::super::clean_up::{Details, Did, Why};
use super::{Around, End, too_long};
use crate::Error;
use crate::receipt::{Reason, Receipt};

pub(in crate::scope) async fn end_session(id: &str, around: &Around) -> End {
    match once(id, around).await {
        Ok(end) => end,
        Err(first) => match once(id, around).await {
            Ok(end) => end.after(vec![first]),
            Err(second) => End::failed(first).after(Vec::new()).plus(second),
        },
    }
}

impl End {
    fn plus(mut self, error: String) -> Self {
        self.errors.push(error);
        self
    }
}

async fn once(id: &str, around: &Around) -> Result<End, String> {
    let host = around.means.host.as_ref();
    let host = host.ok_or("sessions are not available")?;
    let limit = around.how.limit;
    match timeout(limit, host.close(id, reason(around.why))).await {
        Err(_elapsed) => Err(too_long(limit)),
        Ok(Ok(receipt)) => Ok(ended(receipt)),
        Ok(Err(Error::Unknown { .. } | Error::Ended { .. })) => Ok(End::fine(Did::Absent)),
        Ok(Err(error)) => Err(error.to_string()),
    }
}

/// A receipt that does not say how many live on proves nothing.
fn ended(receipt: Receipt) -> End {
    let is_gone = receipt.survivors == Some(0);
    // The host keeps the receipt of a session that ended earlier.
    let was_gone = receipt.reason == Reason::ProgramEnded;
    let mut end = End::fine(if was_gone { Did::Absent } else { Did::Ended });
    end.ok = is_gone;
    if !is_gone {
        let why = receipt.survivors.map_or_else(
            || "unknown whether any of its processes are still running".to_owned(),
            |count| format!("{count} of its processes are still running"),
        );
        end.errors.push(why);
        end.errors.extend(receipt.errors.iter().cloned());
    }
    end.with(Details {
        survivors: is_gone.then(Vec::new),
        killed: receipt.killed,
        reaped: receipt.reaped,
        exit: receipt.exit.clone(),
        session: Some(receipt),
        ..Details::default()
    })
}

fn reason(why: Why) -> Reason {
    match why {
        Why::Idle => Reason::Idle,
        Why::ClientGone | Why::OwnerGone => Reason::ClientGone,
        Why::Shutdown | Why::HostGone => Reason::Shutdown,
        Why::StartFailed => Reason::StartFailed,
        Why::Asked | Why::AskedFromInside | Why::Ended => Reason::Asked,
    }
}
