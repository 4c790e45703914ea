//! Process ownership: a clean start, a keeper for each tree that ends only when nothing is left of
//! the tree, and the protocols between supervisors.
//!
//! A [`Plan`](plan::Plan) describes a start. [`Tree::start`](tree::Tree::start) forks a keeper, the
//! keeper starts the program, and the [`Tree`](tree::Tree) is the owner's end: it receives events
//! and requests the end. When the owner is gone, the keeper ends the tree.

pub mod adopt;
mod cgroup;
pub mod environment;
pub mod input_file;
mod keeper;
mod limits;
pub mod listen;
pub mod mark;
mod members;
pub mod name_lookup;
pub mod notify;
pub mod own_limit;
pub mod parent;
pub mod plan;
pub mod pty;
pub mod random;
pub mod reserve;
pub mod run_id;
pub mod signals;
mod spawn;
mod strays;
pub mod sweep;
mod sys;
pub mod tree;

#[cfg(feature = "fuzzing")]
pub use keeper::message::fuzz_message as fuzz_keeper_message;
