//! `[serve]`: what `fdguard serve` is allowed to do to services.

use serde::Deserialize;
use toml::Spanned;

use crate::located::{ConfigMistake, FileText};

/// The table as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    #[serde(default)]
    trace: Vec<Spanned<String>>,
}

/// The services whose confirmed leaks may be traced.
pub(super) fn read(
    table: Option<Table>,
    place: FileText<'_>,
) -> Result<Vec<String>, ConfigMistake> {
    let mut services: Vec<String> = Vec::new();
    for service in table.map(|table| table.trace).unwrap_or_default() {
        if service.get_ref().is_empty() {
            return Err(place.mistake(&service, "serve.trace", "a service must have a name"));
        }
        if !services.contains(service.get_ref()) {
            services.push(service.into_inner());
        }
    }
    Ok(services)
}
