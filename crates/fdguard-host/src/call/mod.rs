//! An HTTP request that any thread can abort but only its owner closes.
//!
//! A [`Caller`] pools idle connections and starts a [`Call`]. The call owns its socket and drives
//! the connection itself, without a background task, so dropping it closes the socket exactly once.
//! All others hold an [`AbortHandle`]: it can cancel the call and call `shutdown(2)` on a
//! *duplicate* of the socket, which has its own number. Only the owner frees descriptor numbers, so
//! none can be reused while the owner still uses it.
//!
//! This wakes the owner because `shutdown` acts on the connection, not on a descriptor number. The
//! kernel marks both directions as ended and reports `EPOLLHUP` and `EPOLLRDHUP` to every watcher
//! of the connection, including tokio's registration of the owner's descriptor. A pending connect
//! fails with `ECONNRESET` in the same way. The peer notices immediately, even while the owner is
//! busy. In addition a token is cancelled: it wakes an owner that has no socket yet (during name
//! resolution) or is between `socket` and `connect`, where `shutdown` has no effect. The owner can
//! close safely while the duplicate exists: tokio removes its registration before it closes, and
//! the call drops the duplicate first.
//!
//! Intentionally not supported: proxy variables (`http_proxy`, …) are ignored, redirects are
//! returned and not followed, bodies are not decompressed, and HTTP/2 is not offered. An open
//! connection costs two descriptors: the socket and its duplicate.

mod abort;
mod caller;
mod calls;
mod connect;
mod event;
mod exchange;
mod failure;
mod limits;
mod owner;
mod pool;
mod request;
pub mod sse;
mod state;
mod wire;

pub use abort::{AbortHandle, AbortReason, AbortResult};
pub use caller::{Caller, CallerClose, Lookup, Options};
pub use calls::Calls;
pub use event::{CallEvent, CallEventKind, CallSink, EventLevel, ThreadLabel};
pub use failure::{CallFailure, TimeLimit};
pub use owner::{Call, CallEnd};
pub use request::{CallRequest, CallResponse, Timeouts};
pub use state::{CallInfo, CallPhase};
