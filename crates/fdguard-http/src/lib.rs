//! The parts that every HTTP server of fdguard shares: who may connect, how long a connection may
//! take, and how a request is refused.
//!
//! A server accepts from a [`ListeningSocket`], gives each connection a [`ConnectionPlace`] and
//! [`ConnectionRules`], and checks each request against its [`AccessRules`] before it looks at
//! anything else. Decision 133 says why this is a crate.

mod connection;
pub mod guard;
mod held_body;
mod listen;
mod pace;
mod places;
pub mod problem;
pub mod refuse;

pub use connection::{
    ConnectionEnd, ConnectionRules, accept_links, forbid_keeping, serve_connection,
};
pub use guard::{AccessRules, Door};
pub use held_body::until_sent;
pub use listen::{ClientLink, ListeningSocket};
pub use pace::{Late, PaceLimits};
pub use places::{AllTaken, ConnectionPlace, Places};
pub use problem::Problem;
