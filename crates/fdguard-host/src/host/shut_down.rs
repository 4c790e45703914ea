//! Shutdown of the host: reject new work, close every session with a receipt, then stop the host's
//! tasks.

use std::sync::{Arc, PoisonError};

use fdguard_core::log_event::LogEvent;
use futures_util::future::join_all;

use super::{Host, Inner};
use crate::receipt::{Receipt, SessionEndReason};

impl Host {
    /// Rejects new work and ends everything. Later callers wait for the same end and get the same
    /// receipts.
    pub async fn shut_down(&self) -> Vec<Receipt> {
        self.inner.begin_shut_down();
        let mut end = self.inner.shut.subscribe();
        let told = end.wait_for(Option::is_some).await;
        told.ok().and_then(|end| end.clone()).unwrap_or_default()
    }
}

impl Inner {
    fn begin_shut_down(self: &Arc<Self>) {
        let is_first = {
            let mut table = self.table();
            !std::mem::replace(&mut table.is_closing, true)
        };
        if is_first {
            // Not among the tasks that it waits for; it continues even if no caller waits.
            let _detached = self.runtime.spawn(Arc::clone(self).end_all());
        }
    }

    async fn end_all(self: Arc<Self>) {
        let entries: Vec<_> = self.table().entries().cloned().collect();
        self.tell(LogEvent::new("shutdown_begin").with("sessions", entries.len()));
        for entry in &entries {
            // The commands return their output so far; the close does not wait for them.
            if entry.session.busy_for().is_some() {
                let entry = Arc::clone(entry);
                let interrupt = async move {
                    let _or_closed = entry.session.interrupt().await;
                };
                self.tasks.spawn_on(interrupt, &self.runtime);
            }
        }
        let ends = entries
            .iter()
            .map(|entry| self.end(entry, SessionEndReason::Shutdown));
        let receipts = join_all(ends).await;
        // Those that were being opened find the host closing, and close again.
        let within = self.options.close_within;
        let opening = self.wait_while(|table| table.opening() > 0);
        let _or_late = tokio::time::timeout(within, opening).await;
        self.stopped.cancel();
        self.tasks.close();
        let _or_late = tokio::time::timeout(within, self.tasks.wait()).await;
        let _or_late = tokio::time::timeout(within, self.cool_down()).await;
        let record = self
            .record
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(record) = record {
            record.close().await;
        }
        let unclean = receipts.iter().filter(|receipt| !receipt.clean).count();
        let event = LogEvent::new("shutdown_end").with("sessions", receipts.len());
        self.tell(event.with("unclean", unclean));
        self.shut.send_replace(Some(receipts));
    }
}
