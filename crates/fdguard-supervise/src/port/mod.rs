//! Who holds an address that we want, and what is done about it.
//!
//! [`look`] finds the sockets at the address, their processes, and which [`Class`] each is of; [`Clearing`] follows a [`Policy`] without ever waiting.
//! Only processes that an earlier run of the same service left behind are ever ended. A stranger is never signalled. See decision 028.

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
