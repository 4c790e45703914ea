//! Closes a session: started once by the first caller, completed even if no caller waits, and
//! reported to all callers.

use std::sync::Arc;

use fdguard_core::log_event::{LogEvent, LogValue};
use fdguard_core::units::whole_milliseconds;

use super::entry::{Entry, ended, word};
use super::{Host, Inner, limits};
use crate::Error;
use crate::receipt::{Receipt, SessionEndReason};

impl Host {
    /// Closes a session. Of many callers one does the work and all get its receipt, even later, as
    /// long as the receipt is kept.
    pub async fn close(&self, id: &str, reason: SessionEndReason) -> Result<Receipt, Error> {
        let entry = {
            let table = self.inner.table();
            match (table.entry(id), table.receipt(id)) {
                (Some(entry), _) => Arc::clone(entry),
                (None, Some(receipt)) => return Ok(receipt.clone()),
                (None, None) => return Err(unknown(id)),
            }
        };
        Ok(self.inner.end(&entry, reason).await)
    }

    /// The receipts of the latest closed sessions, oldest first.
    #[must_use]
    pub fn receipts(&self) -> Vec<Receipt> {
        self.inner.table().receipts().cloned().collect()
    }
}

fn unknown(id: &str) -> Error {
    Error::Unknown {
        what: "session",
        id: id.to_owned(),
    }
}

impl Inner {
    /// The session with this id.
    pub(super) fn entry(&self, id: &str) -> Result<Arc<Entry>, Error> {
        let table = self.table();
        match (table.entry(id), table.receipt(id)) {
            (Some(entry), _) => Ok(Arc::clone(entry)),
            (None, Some(receipt)) => Err(ended(id, receipt.reason)),
            (None, None) => Err(unknown(id)),
        }
    }

    /// Ends it, and waits for that.
    pub(super) async fn end(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        reason: SessionEndReason,
    ) -> Receipt {
        self.begin_end(entry, reason);
        let told = entry.told_end().await;
        told.unwrap_or_else(|| {
            Receipt::unknown(&entry.id, reason, "the session's close was not reported")
        })
    }

    /// Starts closing the session, unless that has happened.
    pub(super) fn begin_end(self: &Arc<Self>, entry: &Arc<Entry>, reason: SessionEndReason) {
        if entry.begin_end(reason, false) {
            self.spawn_end(entry, reason);
        }
    }

    /// The same, unless a call is using the session. Returns whether it closes now.
    pub(super) fn begin_end_unused(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        reason: SessionEndReason,
    ) -> bool {
        let begins = entry.begin_end(reason, true);
        if begins {
            self.spawn_end(entry, reason);
        }
        begins
    }

    fn spawn_end(self: &Arc<Self>, entry: &Arc<Entry>, reason: SessionEndReason) {
        let end = Arc::clone(self).carry_through(Arc::clone(entry), reason);
        self.tasks.spawn_on(end, &self.runtime);
    }

    async fn carry_through(self: Arc<Self>, entry: Arc<Entry>, reason: SessionEndReason) {
        let loan = self.room.lend();
        let record = self.record();
        let claim = match &record {
            Some(record) => record.claim(&entry.id).await,
            None => None,
        };
        let closing = {
            let entry = Arc::clone(&entry);
            // In its own task: the time limit of the caller must not cancel a close halfway.
            let close = async move { entry.session.close(reason).await };
            self.tasks.spawn_on(close, &self.runtime)
        };
        tokio::pin!(closing);
        let closed = match tokio::time::timeout(self.options.close_within, &mut closing).await {
            Ok(closed) => closed,
            Err(_elapsed) => {
                let within = whole_milliseconds(self.options.close_within);
                let late = format!("the session did not close within {within}; closing continues");
                let receipt = Receipt::unknown(&entry.id, reason, late);
                self.tell_closed("session_close_late", &entry, &receipt);
                entry.tell_end(receipt);
                closing.await
            }
        };
        let mut receipt = closed.unwrap_or_else(|error| {
            Receipt::unknown(
                &entry.id,
                reason,
                format!("closing the session failed: {error}"),
            )
        });
        receipt.overuse = limits::overuse(&entry);
        if receipt.overuse.is_some() && receipt.reason == SessionEndReason::ProgramEnded {
            receipt.reason = SessionEndReason::Limit;
        }
        drop(loan);
        if let (Some(record), Some(claim)) = (record, claim) {
            record.finish(claim, &receipt).await;
        }
        self.record_close(&entry, receipt);
    }

    /// Frees the slot, stores the receipt and reports it.
    fn record_close(&self, entry: &Entry, receipt: Receipt) {
        self.table().close(receipt.clone());
        self.changed.send_modify(|()| {});
        self.tell_closed("session_close", entry, &receipt);
        entry.tell_end(receipt);
    }

    fn tell_closed(&self, name: &'static str, entry: &Entry, receipt: &Receipt) {
        let error = receipt.errors.first().map(String::as_str);
        let event = LogEvent::new(name)
            .with("id", entry.id.as_str())
            .with("client", entry.client.as_deref())
            .with("reason", word(receipt.reason))
            .with("clean", receipt.clean)
            .with("survivors", receipt.survivors)
            .with("zombies", receipt.zombies)
            .with("killed", receipt.killed)
            .with("descriptors_left", receipt.descriptors_left)
            .with("exit", receipt.exit.as_deref())
            .with("ms", (receipt.total_ms * 1000.0).round() / 1000.0)
            .with(
                "limit",
                receipt.overuse.map(|over| limits::word(over.limit)),
            )
            .with("used", receipt.overuse.map(|over| over.used))
            .with("error", LogValue::from(error));
        self.tell(event);
    }
}
