//! `--explain`: every effective value and its source.

use std::fmt::Write as _;

use super::RunSettings;
use super::key::{self, Key};
use super::value::{ValueSource, Values};

/// The values as the lines of a file, each followed by its source.
#[must_use]
pub fn explain(settings: &RunSettings) -> String {
    let file = settings.file.as_deref();
    let mut text = String::new();
    table(&mut text, key::RUN, &settings.values, file);
    for service in &settings.services {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n[service.{}]\n", service.name);
        table(&mut text, key::SERVICE, &service.values, file);
    }
    text
}

fn table(text: &mut String, keys: &[Key], values: &Values, file: Option<&str>) {
    for key in keys {
        let (shown, source) = match values.get(key.name) {
            Some(value) => (list(&value.texts), value.source),
            None => {
                let texts: Vec<String> = key.default.iter().map(ToString::to_string).collect();
                (list(&texts), ValueSource::Default)
            }
        };
        let source = match source {
            ValueSource::Default => "default".to_owned(),
            ValueSource::File(place) => format!("{}:{}", file.unwrap_or("file"), place.line),
            ValueSource::Flag if key.name == "command" => "command line".to_owned(),
            ValueSource::Flag => format!("--{}", key.name.replace('_', "-")),
            ValueSource::Environment(name) => format!("environment {name}"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:<40} # {source}", format!("{} = {shown}", key.name));
    }
}

fn list(texts: &[String]) -> String {
    match texts {
        [one] => format!("{one:?}"),
        several => format!("{several:?}"),
    }
}
