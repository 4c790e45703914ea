//! `--explain`: every effective value and its source.

use fdguard_core::located::{SourceList, ValueSource};

use super::RunSettings;
use super::key::{self, Key};
use super::value::Values;

/// The values as the lines of a file, each followed by its source.
#[must_use]
pub fn explain(settings: &RunSettings) -> String {
    let mut list = SourceList::new(settings.file.as_deref());
    table(&mut list, key::RUN, &settings.values);
    for service in &settings.services {
        list.table(&format!("[service.{}]", service.name));
        table(&mut list, key::SERVICE, &service.values);
    }
    list.into_text()
}

fn table(list: &mut SourceList<'_>, keys: &[Key], values: &Values) {
    for key in keys {
        let flag = match key.name {
            "command" => "command line".to_owned(),
            name => format!("--{}", name.replace('_', "-")),
        };
        match values.get(key.name) {
            Some(value) => list.value(key.name, &value.texts, value.source, &flag),
            None => {
                let texts: Vec<String> = key.default.iter().map(ToString::to_string).collect();
                list.value(key.name, &texts, ValueSource::Default, &flag);
            }
        }
    }
}
