//! What may be put into a service from outside: a tracer, a protector.

use std::ffi::OsString;

/// Puts something into programs by their environment, and knows what came of it.
pub trait Injector: std::fmt::Debug {
    /// Adds to the environment that a program is started with.
    fn environment(&self, environment: &mut Vec<(OsString, OsString)>);

    /// What is known about this process in one line: the place in the code that opened most of what is open, say.
    fn report(&self, pid: u32) -> Option<String>;
}
