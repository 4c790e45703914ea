//! The host as an MCP server, on standard streams and over streamable HTTP.
