//! A socket that we are to bind and that somebody has.

use fdguard_process::listen::{BindError, Bound, Listen};

use super::Refusal;
use crate::config;
use crate::event::Sink;

/// Binds it, or does what the service's policy says.
pub(super) fn bind(
    _service: &config::Service,
    listen: &Listen,
    _sink: &mut Sink,
) -> Result<Bound, Refusal> {
    listen.bind().map_err(|error| {
        let code = match error {
            BindError::Held { .. } => 2,
            _ => 125,
        };
        Refusal {
            message: error.to_string(),
            hint: String::new(),
            code,
        }
    })
}
