//! The doctor's report: one outline for both the text and the web page, and the document for
//! programs.

mod document;
mod outline;
mod text;
mod verdict;

pub use document::{bundled_document, write_document};
pub use outline::outline;
pub(super) use outline::within;
pub use text::{Options, write};
pub use verdict::headline;
