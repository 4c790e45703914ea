//! The whole host all the time: every process by radar, those that grow or are near a limit by a
//! watch, with history, findings as events, metrics and an HTTP API.
//!
//! The judgement is that of `watch` ([`fdguard_core::diagnosis`]). What decides is pure and has
//! stories as tests: which processes are one service ([`service`]), which deserve a watch, how much
//! of it the processor budget allows ([`budget`]), when a finding opens and resolves
//! ([`finding_book`]), which series are folded ([`metrics`]), when growth began ([`onset`]).
//! [`Serving`] is the program around them.

mod background_queue;
pub mod budget;
mod common_workload;
mod count_track;
mod delivery;
mod engine;
mod evidence;
mod extra_headers;
pub mod finding_book;
pub mod fleet;
pub mod history_record;
mod host_clock;
mod http_client;
mod limited_child;
mod metric_sink;
pub mod metrics;
pub mod onset;
pub mod overview;
mod own_cost;
mod past_services;
mod process_watch;
mod program_stamp;
mod push;
mod rate_window;
mod reporter;
mod roster;
mod serve;
pub mod service;
mod service_names;
mod store;
mod target_tally;
#[cfg(test)]
mod testing;
mod trace_keeper;
mod watch_slots;
mod web;

pub use delivery::signature::WebhookSecret;
pub use evidence::EvidenceOptions;
pub use extra_headers::ExtraHeaders;
pub use http_client::ReceiverUrl;
pub use serve::{LogSink, PushOptions, ServeError, ServeOptions, Serving};
pub use store::{
    ServiceHistory, ServiceMoment, StoreError, StoreOptions, read_history, read_moment,
    read_services,
};
pub use trace_keeper::{TraceNote, TraceOptions, TracedLine};
pub use web::{WebSettings, read_tls};

use fdguard_core::lint::Severity;

/// The word of a severity in labels and documents.
pub(crate) fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}
