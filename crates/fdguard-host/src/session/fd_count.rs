//! Counts the descriptors that the host holds for a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of held descriptors. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(super) struct FdCount(Arc<AtomicU32>);

/// Declared after its descriptor in a struct, so that it is dropped after the close.
#[derive(Debug)]
pub(super) struct Token(FdCount);

impl FdCount {
    pub(super) fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn token(&self) -> Token {
        self.0.fetch_add(1, Ordering::AcqRel);
        Token(self.clone())
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
