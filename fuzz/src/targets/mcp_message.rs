//! Messages of MCP clients.

pub(crate) use fdguard_host::mcp::fuzz_message as run;
