//! The HTTP side: access, routes, the page, and a server that clients cannot block.

mod api;
mod assets;
mod detail;
mod events;
mod processes;
mod query;
mod server;
mod tls;
mod viewed;

pub use api::WebSettings;
pub(crate) use api::{BLOCKING_THREADS, LoopOrder, Published, SuppressOrder, WebApi, WebSources};
pub(crate) use server::WebServer;
pub use tls::read_tls;
