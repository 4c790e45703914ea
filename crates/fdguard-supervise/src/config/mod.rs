//! Configuration: defaults, environment, one TOML file and flags; later ones win. Every value keeps
//! its source.
//!
//! `key` is the table of keys, `file` parses TOML, `service` interprets the values. Nothing here
//! opens a file.

use std::ffi::OsString;
use std::path::PathBuf;

use fdguard_core::located::{ConfigMistake, FilePosition, ValueSource};

use crate::event::EventFormat;
use crate::evidence;
use crate::metrics;

mod explain;
mod file;
mod key;
mod order;
mod reader;
mod service;
#[cfg(test)]
mod tests;
mod value;

pub use explain::explain;
pub use service::{Background, ServiceConfig, SocketConfig};
pub use value::{ConfigValue, Values};

use reader::Reader;

/// Values from the command line and the environment.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The program and its arguments; empty with a file.
    pub command: Vec<OsString>,
    /// The name of the single service.
    pub name: Option<String>,
    /// Flags, by the equivalent key.
    pub flags: Vec<(&'static str, Vec<String>)>,
    /// Environment variables: key, name, value.
    pub environment: Vec<(&'static str, &'static str, String)>,
    /// Run once, without restarts.
    pub once: bool,
}

/// The effective configuration.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// The file's name, as given.
    pub file: Option<String>,
    /// The values of the whole run, as written.
    pub values: Values,
    /// The format of event lines.
    pub form: EventFormat,
    /// Where metrics are served.
    pub metrics: Option<std::net::SocketAddr>,
    /// The token for callers that may see more than counts.
    pub metrics_token: Option<metrics::TokenSource>,
    /// Where evidence is written.
    pub evidence: Option<PathBuf>,
    /// The services, each after those that it depends on.
    pub services: Vec<ServiceConfig>,
    /// Run once, without restarts.
    pub once: bool,
}

/// The keys that have a flag of the same name, with dashes.
pub fn flags() -> impl Iterator<Item = &'static str> {
    let keys = key::RUN.iter().chain(key::SERVICE);
    keys.filter(|key| key.has_flag).map(|key| key.name)
}

impl RunSettings {
    /// Merges all sources. `file` is its name and its text.
    pub fn resolve(said: &Overrides, file: Option<(&str, &str)>) -> Result<Self, ConfigMistake> {
        match file {
            Some((name, text)) => file::File::parse(text)
                .and_then(|read| Self::compose(said, Some(name), read))
                .map_err(|mistake| mistake.in_file(name)),
            None => Self::compose(said, None, Self::single(said)?),
        }
    }

    /// The one service of a command line.
    fn single(said: &Overrides) -> Result<file::File, ConfigMistake> {
        let words = said.command.iter().map(|word| word.to_string_lossy());
        let mut values = Values::default();
        values.set(
            "command",
            words.map(Into::into).collect(),
            ValueSource::Flag,
        );
        let name = match &said.name {
            Some(name) if !file::is_name(name) => {
                let message = "a service name may contain only letters, digits and . _ - @";
                return Err(reader::mistake("name", ValueSource::Flag, message));
            }
            Some(name) => name.clone(),
            None => name_of(&said.command),
        };
        let place = FilePosition { line: 0, column: 0 };
        Ok(file::File {
            run: Values::default(),
            services: vec![(name, place, values)],
        })
    }

    fn compose(
        said: &Overrides,
        name: Option<&str>,
        read: file::File,
    ) -> Result<Self, ConfigMistake> {
        let (mut run, mut each) = (Values::default(), Values::default());
        for (key, variable, text) in &said.environment {
            layer(
                &mut run,
                &mut each,
                key,
                vec![text.clone()],
                ValueSource::Environment(variable),
            );
        }
        let mut over = (Values::default(), Values::default());
        for (key, texts) in &said.flags {
            layer(
                &mut over.0,
                &mut over.1,
                key,
                texts.clone(),
                ValueSource::Flag,
            );
        }
        // The environment is overridden by the file, and the file by flags.
        let values = run.under(&read.run).under(&over.0);
        let services = read
            .services
            .into_iter()
            .map(|(name, _, values)| {
                let values = each.clone().under(&values).under(&over.1);
                ServiceConfig::resolve(name, values, said)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let reader = Reader {
            keys: key::RUN,
            values: &values,
        };
        Ok(Self {
            file: name.map(ToOwned::to_owned),
            form: reader.one("log_format")?,
            metrics: reader.maybe("metrics", address)?,
            metrics_token: reader.maybe("metrics_token", str::parse)?,
            evidence: reader.maybe("evidence", evidence)?,
            services: in_order(services)?,
            once: said.once,
            values,
        })
    }
}

fn layer(
    run: &mut Values,
    each: &mut Values,
    key: &'static str,
    texts: Vec<String>,
    source: ValueSource,
) {
    match key::find(key::RUN, key) {
        Ok(_) => run.set(key, texts, source),
        Err(_) => each.set(key, texts, source),
    }
}

fn in_order(services: Vec<ServiceConfig>) -> Result<Vec<ServiceConfig>, ConfigMistake> {
    let items: Vec<order::Item<'_>> = services
        .iter()
        .map(|service| order::Item {
            name: &service.name,
            after: &service.after,
            source: service
                .values
                .get("after")
                .map_or(ValueSource::Default, |value| value.source),
        })
        .collect();
    let sorted = order::order(&items)?;
    drop(items);
    let mut services: Vec<Option<ServiceConfig>> = services.into_iter().map(Some).collect();
    Ok(sorted
        .into_iter()
        .filter_map(|at| services[at].take())
        .collect())
}

/// Parses a directory, or `auto` for the default one.
fn evidence(text: &str) -> Result<PathBuf, String> {
    Ok(match text {
        "auto" => evidence::default_dir(|name| std::env::var_os(name)).1,
        dir => dir.into(),
    })
}

/// A port alone means this host.
fn address(text: &str) -> Result<std::net::SocketAddr, String> {
    let text = match text.parse::<u16>() {
        Ok(port) => format!("127.0.0.1:{port}"),
        Err(_) => text.replacen("localhost:", "127.0.0.1:", 1),
    };
    text.parse().map_err(|_error| {
        format!("{text:?} is not an address: use PORT or HOST:PORT, such as 127.0.0.1:9464")
    })
}

/// The program's name, as far as it is a valid service name.
fn name_of(command: &[OsString]) -> String {
    let program = command.first().map(PathBuf::from).unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    let plain: String = name.chars().filter(is_plain).take(64).collect();
    if plain.is_empty() {
        return "service".to_owned();
    }
    plain
}
