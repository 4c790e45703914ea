//! Which process holds an address, and what to do about it.
//!
//! [`find_conflict`] finds the sockets at the address, their processes, and the [`HolderClass`] of
//! each; [`Clearing`] follows a [`PortPolicy`] without blocking. Only processes that an earlier run
//! of the same service left behind are ever stopped. Unrelated processes are never signalled. See
//! decision 028.

mod class;
mod clearing;
mod conflict;
mod policy;
mod text;

pub use class::{HolderClass, OwnProcesses, classify};
pub use clearing::{Clearing, ClearingStep};
pub use conflict::{AddressHolder, Conflict, HiddenSocket, find_conflict, is_in_the_way};
pub use policy::{BadPortPolicy, PortPolicy};

#[cfg(test)]
mod tests;
