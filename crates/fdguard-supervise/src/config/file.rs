//! Parses the TOML file into values with their positions. It checks keys and shapes, not the
//! meaning of values.

use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::key::{self, Key, Takes};
use super::value::{ConfigMistake, FilePosition, ValueSource, Values};
use crate::health::CheckSpec;

/// The parsed file.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    /// The top-level values.
    pub(super) run: Values,
    /// The values of each service, with the position of its name.
    pub(super) services: Vec<(String, FilePosition, Values)>,
}

impl File {
    /// Reads the text.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigMistake> {
        let table = DeTable::parse(text).map_err(|error| {
            let place = FilePosition::from_span(text, &error.span().unwrap_or(0..0));
            ConfigMistake::new(ValueSource::File(place), error.message())
        })?;
        let mut file = Self::default();
        for (name, value) in table.get_ref().iter() {
            if name.get_ref() != "service" {
                set(
                    text,
                    key::RUN,
                    name.get_ref(),
                    &name.span(),
                    value,
                    &mut file.run,
                )?;
                continue;
            }
            let DeValue::Table(services) = value.get_ref() else {
                return Err(wrong(
                    text,
                    value,
                    "services must be tables: [service.NAME]",
                ));
            };
            for (name, table) in services {
                file.services.push(service(text, name, table)?);
            }
        }
        if file.services.is_empty() {
            let place = FilePosition { line: 1, column: 1 };
            return Err(ConfigMistake::new(
                ValueSource::File(place),
                "no service defined: add a [service.NAME] table",
            ));
        }
        file.services
            .sort_by_key(|(_, place, _)| (place.line, place.column));
        Ok(file)
    }
}

fn service(
    text: &str,
    name: &Spanned<std::borrow::Cow<'_, str>>,
    table: &Spanned<DeValue<'_>>,
) -> Result<(String, FilePosition, Values), ConfigMistake> {
    let place = FilePosition::from_span(text, &name.span());
    if !is_name(name.get_ref()) {
        let message = "a service name may contain only letters, digits and . _ - @";
        return Err(ConfigMistake::new(ValueSource::File(place), message));
    }
    let DeValue::Table(entries) = table.get_ref() else {
        return Err(wrong(
            text,
            table,
            "a service must be a table: [service.NAME]",
        ));
    };
    let mut values = Values::default();
    for (key, value) in entries {
        set(
            text,
            key::SERVICE,
            key.get_ref(),
            &key.span(),
            value,
            &mut values,
        )?;
    }
    if values.get("command").is_none() {
        return Err(ConfigMistake::new(
            ValueSource::File(place),
            "service has no command",
        ));
    }
    Ok((name.get_ref().to_string(), place, values))
}

/// Whether this is a valid service name.
pub(super) fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    !text.is_empty() && text.len() <= 128 && text.bytes().all(is_plain)
}

fn set(
    text: &str,
    table: &'static [Key],
    name: &str,
    span: &std::ops::Range<usize>,
    value: &Spanned<DeValue<'_>>,
    values: &mut Values,
) -> Result<(), ConfigMistake> {
    let key = key::find(table, name).map_err(|message| {
        ConfigMistake::new(
            ValueSource::File(FilePosition::from_span(text, span)),
            message,
        )
    })?;
    let source = ValueSource::File(FilePosition::from_span(text, &value.span()));
    if matches!(key.takes, Takes::Check | Takes::Checks) {
        let checks = match (key.takes, value.get_ref()) {
            (Takes::Checks, DeValue::Array(items)) => items
                .iter()
                .map(|item| check(text, key, item))
                .collect::<Result<_, _>>()?,
            _ => vec![check(text, key, value)?],
        };
        values.set_checks(key.name, checks, source);
        return Ok(());
    }
    let texts = match (key.takes, value.get_ref()) {
        (Takes::Many | Takes::Pairs, DeValue::Array(items)) => items
            .iter()
            .map(|item| scalar(text, key, item))
            .collect::<Result<_, _>>()?,
        (Takes::Pairs, DeValue::Table(entries)) => entries
            .iter()
            .map(|(name, value)| {
                let value = scalar(text, key, value)?;
                Ok(format!("{}={value}", name.get_ref()))
            })
            .collect::<Result<_, _>>()?,
        _ => vec![scalar(text, key, value)?],
    };
    values.set(key.name, texts, source);
    Ok(())
}

/// A check, as a string like the flag's or as a table with Kubernetes' names.
fn check(text: &str, key: &Key, value: &Spanned<DeValue<'_>>) -> Result<CheckSpec, ConfigMistake> {
    let read = CheckSpec::deserialize(ValueDeserializer::from(value.clone()));
    read.map_err(|error| {
        let place = FilePosition::from_span(text, &error.span().unwrap_or(value.span()));
        let message = format!("{}: {}", key.name, error.message());
        ConfigMistake::new(ValueSource::File(place), message)
    })
}

/// A string, number or boolean as text.
fn scalar(text: &str, key: &Key, value: &Spanned<DeValue<'_>>) -> Result<String, ConfigMistake> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Float(number) => Ok(number.to_string()),
        DeValue::Boolean(true) => Ok("on".to_owned()),
        DeValue::Boolean(false) => Ok("off".to_owned()),
        _ => {
            let shape = match key.takes {
                Takes::One => "a single value",
                Takes::Many => "a list of strings",
                Takes::Pairs => "a table of strings",
                Takes::Check | Takes::Checks => "a check",
            };
            Err(wrong(text, value, &format!("{} must be {shape}", key.name)))
        }
    }
}

fn wrong(text: &str, value: &Spanned<DeValue<'_>>, message: &str) -> ConfigMistake {
    ConfigMistake::new(
        ValueSource::File(FilePosition::from_span(text, &value.span())),
        message,
    )
}

#[cfg(test)]
mod tests {
    use super::File;
    use crate::config::value::{FilePosition, ValueSource};

    const WHOLE: &str = "\
log_format = \"json\"

[service.web]
command = [\"./web\", \"--port\", \"8080\"]
after = [\"db\"]
env = { MODE = \"live\", N = 3 }
stop_on = [3, 4]

[service.db]
command = [\"./db\"]
raise_limit = false
";

    #[test]
    fn a_whole_file_is_read_in_its_order_with_places() {
        let file = File::parse(WHOLE).unwrap();
        let names: Vec<&str> = file.services.iter().map(|one| one.0.as_str()).collect();
        assert_eq!(names, ["web", "db"]);
        assert_eq!(file.run.get("log_format").unwrap().texts, ["json"]);
        let web = &file.services[0].2;
        assert_eq!(web.get("env").unwrap().texts, ["MODE=live", "N=3"]);
        assert_eq!(web.get("stop_on").unwrap().texts, ["3", "4"]);
        let place = FilePosition { line: 5, column: 9 };
        assert_eq!(web.get("after").unwrap().source, ValueSource::File(place));
        assert_eq!(
            file.services[1].2.get("raise_limit").unwrap().texts,
            ["off"]
        );
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_column() {
        let said = |text: &str| File::parse(text).unwrap_err().to_string();
        let one = "[service.a]\ncommand = [\"true\"]\n";
        assert_eq!(
            said(&format!("{one}restrat = \"always\"\n")),
            "line 3, column 1: unknown key `restrat`: did you mean `restart`?"
        );
        assert!(said("foramt = 1\n").starts_with("line 1, column 1: unknown key `foramt`"));
        assert_eq!(
            said(&format!("{one}restart = [1]\n")),
            "line 3, column 11: restart must be a single value"
        );
        assert_eq!(
            said("[service.a]\n"),
            "line 1, column 10: service has no command"
        );
        assert_eq!(
            said("[service.\"a b\"]\ncommand = [\"true\"]\n"),
            "line 1, column 10: a service name may contain only letters, digits and . _ - @"
        );
        assert!(said("").ends_with("no service defined: add a [service.NAME] table"));
        assert!(said("service = 3\n").starts_with("line 1, column 11: services must be tables"));
        assert!(said("[service.a\n").starts_with("line 1, column "));
        assert!(said(&format!("{one}{one}")).starts_with("line 3, column "));
    }
}
