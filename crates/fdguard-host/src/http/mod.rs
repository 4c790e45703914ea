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
mod guard;
mod json_error;
mod listen;
mod openapi;
mod openapi_shape;
mod pace;
mod places;
mod problem;
mod refuse;
mod registry_count;
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
pub use listen::ListeningSocket;
pub use openapi::document as openapi;
pub use problem::Problem;
pub(crate) use routes::archive::{NewArchive, run as archive};
pub use serve::HttpServer;
pub(crate) use signal::SignalWait;
