//! A request that any thread can abort, and that only its owner closes.

/// An interruptible request.
#[derive(Debug)]
pub struct Call {}
