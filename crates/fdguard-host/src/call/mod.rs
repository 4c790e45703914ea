//! A request that any thread can abort, and that only its owner closes.
//!
//! A [`Caller`] keeps idle connections and begins a [`Call`]. The call is the owner of its socket: it drives the connection itself, no task in the
//! background does, so dropping it closes the socket, exactly once. Everybody else has an [`AbortHandle`]: it can say "cancelled" and call `shutdown(2)` on a
//! *duplicate* of the socket, which has a number of its own. No number is ever freed by a stranger, so none can be recycled under the owner.
//!
//! Why that wakes the owner: `shutdown` acts on the connection, not on a number. The kernel marks both directions as ended and reports `EPOLLHUP` and
//! `EPOLLRDHUP` to everybody who watches the connection, also to the registration that tokio made with the owner's number. A connect that waits for an answer
//! fails with `ECONNRESET` in the same way. The peer is told at once, even while the owner is busy elsewhere. Besides this a token is
//! cancelled: it wakes an owner that has no socket yet (it resolves a name) or that is between `socket` and `connect`, where `shutdown` has nothing to end.
//! The owner's close is safe with the duplicate still there: tokio takes its registration back before it closes, and the call drops the duplicate first.
//!
//! What it does not do, on purpose: proxy variables (`http_proxy`, …) are ignored, redirects are given to the caller and not followed, bodies are not
//! decompressed, HTTP/2 is not offered. An open connection costs two descriptors: the socket and its duplicate.

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
