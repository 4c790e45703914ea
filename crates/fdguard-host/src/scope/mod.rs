//! Everything that one agent holds, and its end.

/// What one agent holds.
#[derive(Debug)]
pub struct Scope {}
