//! JSON documents with a schema name; every response of the host is one.

use serde::Serialize;

/// A document: its name first, then its fields.
#[derive(Serialize)]
pub(crate) struct Document<T> {
    schema: &'static str,
    #[serde(flatten)]
    value: T,
}

impl<T> Document<T> {
    pub(crate) fn new(schema: &'static str, value: T) -> Self {
        Self { schema, value }
    }
}
