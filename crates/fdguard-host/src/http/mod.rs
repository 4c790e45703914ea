//! The host over HTTP: a versioned JSON API with an OpenAPI document, and a server that clients
//! cannot block.
//!
//! One table of routes defines both the router and the document. [`HttpServer`] accepts
//! connections; [`run`] is the whole program: runtime, signals, shutdown.

mod accept;
mod api;
mod body;
mod counts;
mod daemon;
mod json_error;
mod openapi;
mod openapi_shape;
mod problem;
mod route;
mod routes;
mod scope_events;
mod serve;
mod signal;
mod table;

pub use api::ApiSettings;
pub(crate) use body::read as read_body;
pub(crate) use daemon::with_runtime;
pub use daemon::{HttpLaunch, run};
#[cfg(feature = "fuzzing")]
pub use fdguard_http::guard::fuzz_guard;
pub use fdguard_http::{ListeningSocket, Problem};
pub use openapi::document as openapi;
pub(crate) use routes::archive::{NewArchive, run as archive};
#[cfg(feature = "fuzzing")]
pub use routes::fuzz_body;
pub use serve::HttpServer;
pub(crate) use signal::SignalWait;
