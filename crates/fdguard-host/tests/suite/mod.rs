//! The tests of the whole crate, one binary.

mod call;
mod host_caps;
mod host_clients;
mod host_close;
mod host_harness;
mod host_killed;
mod host_limits;
mod host_registry;
mod host_room;
mod host_shut_down;
mod http_access;
mod http_harness;
mod http_hostile;
mod http_mcp;
mod http_sessions;
mod session_bash;
mod session_interrupt;
mod session_life;
mod session_output;
mod session_python;
mod session_support;
mod warm;
