//! What fdguard knows of `CPython`: where each version keeps what a walk of its frames reads, and
//! how it encodes lines. The injected library uses it in the process, the kernel tracer from
//! outside. Pure code without allocation.

mod line_format;
mod offsets;
mod table;
mod text;
mod version;

pub use line_format::LineFormat;
pub use offsets::{DEBUG_SPAN, PythonOffsets, PythonSelfReport};
pub use text::encode_character;
pub use version::{PythonRefusal, parse_version};
