//! Parses the TOML file into values with their positions. It checks keys and shapes, not the
//! meaning of values.

use std::borrow::Cow;

use fdguard_core::located::{ConfigMistake, FilePosition, FileText};
use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use super::key::{self, Key, Takes};
use super::value::Values;
use crate::budget::BudgetSetting;
use crate::health::CheckSpec;

/// The parsed file.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    /// The top-level values.
    pub(super) run: Values,
    /// The values of each service, with the position of its name.
    pub(super) services: Vec<(String, FilePosition, Values)>,
}

type Name<'t> = Spanned<Cow<'t, str>>;
type Value<'t> = Spanned<DeValue<'t>>;

impl File {
    /// Reads the text.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigMistake> {
        let text = FileText(text);
        let mut file = Self::default();
        for (name, value) in text.table()?.get_ref().iter() {
            if name.get_ref() != "service" {
                set(text, key::RUN, (name, value), &mut file.run)?;
                continue;
            }
            let DeValue::Table(services) = value.get_ref() else {
                let message = "services must be tables: [service.NAME]";
                return Err(text.mistake(value, "", message));
            };
            for (name, table) in services {
                file.services.push(service(text, name, table)?);
            }
        }
        if file.services.is_empty() {
            let start = text.source(&(0..0));
            let message = "no service defined: add a [service.NAME] table";
            return Err(ConfigMistake::new(start, "", message));
        }
        file.services
            .sort_by_key(|(_, place, _)| (place.line, place.column));
        Ok(file)
    }
}

fn service(
    text: FileText<'_>,
    name: &Name<'_>,
    table: &Value<'_>,
) -> Result<(String, FilePosition, Values), ConfigMistake> {
    if !is_name(name.get_ref()) {
        let message = "a service name may contain only letters, digits and . _ - @";
        return Err(text.mistake(name, "", message));
    }
    let DeValue::Table(entries) = table.get_ref() else {
        return Err(text.mistake(table, "", "a service must be a table: [service.NAME]"));
    };
    let mut values = Values::default();
    for entry in entries {
        set(text, key::SERVICE, entry, &mut values)?;
    }
    if values.get("command").is_none() {
        return Err(text.mistake(name, "", "service has no command"));
    }
    let place = FilePosition::from_span(text.0, &name.span());
    Ok((name.get_ref().to_string(), place, values))
}

/// Whether this is a valid service name.
pub(super) fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    !text.is_empty() && text.len() <= 128 && text.bytes().all(is_plain)
}

fn set(
    text: FileText<'_>,
    table: &'static [Key],
    (name, value): (&Name<'_>, &Value<'_>),
    values: &mut Values,
) -> Result<(), ConfigMistake> {
    let key = key::find(table, name.get_ref()).map_err(|error| text.mistake(name, "", error))?;
    let source = text.source(&value.span());
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
    let pair = |(name, value): (&Name<'_>, &Value<'_>)| match key.takes {
        Takes::Budgets => budget(text, key, name, value),
        _ => Ok(format!("{}={}", name.get_ref(), scalar(text, key, value)?)),
    };
    let texts = match (key.takes, value.get_ref()) {
        (Takes::Many | Takes::Pairs | Takes::Budgets, DeValue::Array(items)) => items
            .iter()
            .map(|item| scalar(text, key, item))
            .collect::<Result<_, _>>()?,
        (Takes::Pairs | Takes::Budgets, DeValue::Table(entries)) => {
            entries.iter().map(pair).collect::<Result<_, _>>()?
        }
        _ => vec![scalar(text, key, value)?],
    };
    values.set(key.name, texts, source);
    Ok(())
}

/// A check, as a string like the flag's or as a table with Kubernetes' names.
fn check(text: FileText<'_>, key: &Key, value: &Value<'_>) -> Result<CheckSpec, ConfigMistake> {
    let read = CheckSpec::deserialize(ValueDeserializer::from(value.clone()));
    read.map_err(|error| {
        let source = text.source(&error.span().unwrap_or(value.span()));
        ConfigMistake::new(source, key.name, error.message())
    })
}

/// A budget in the form of the flag: `fds = "80%:90%"`, or `fds = { warn = "80%", act = "90%" }`.
fn budget(
    text: FileText<'_>,
    key: &Key,
    name: &Name<'_>,
    value: &Value<'_>,
) -> Result<String, ConfigMistake> {
    let levels = match value.get_ref() {
        DeValue::Table(levels) => {
            let unknown = levels
                .keys()
                .find(|level| !["warn", "act"].contains(&&**level.get_ref()));
            if let Some(level) = unknown {
                let message = format!("unknown key `{}`: use warn and act", level.get_ref());
                return Err(text.mistake(level, key.name, message));
            }
            let level = |name: &str| match levels.get(name) {
                Some(value) => scalar(text, key, value),
                None => Ok(String::new()),
            };
            format!("{}:{}", level("warn")?, level("act")?)
        }
        _ => scalar(text, key, value)?,
    };
    let budget = format!("{}={levels}", name.get_ref());
    let checked = budget.parse::<BudgetSetting>();
    checked.map_err(|error| text.mistake(value, key.name, error))?;
    Ok(budget)
}

/// A string, number or boolean as text.
fn scalar(text: FileText<'_>, key: &Key, value: &Value<'_>) -> Result<String, ConfigMistake> {
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
                Takes::Budgets => "a table of levels such as 900 or \"80%:90%\"",
                Takes::Check | Takes::Checks => "a check",
            };
            Err(text.mistake(value, "", format!("{} must be {shape}", key.name)))
        }
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::located::{FilePosition, ValueSource};

    use super::File;

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
    #[test]
    fn budgets_in_a_table_say_the_same_as_flags() {
        let text = r#"
            [service.a]
            command = ["true"]
            [service.a.budget]
            fds = "80%:90%"
            zombies = 50
            memory = { warn = "512MiB", act = "1GiB" }
            "class:tcp:CLOSE_WAIT" = { warn = 200 }
            highest = "off"
        "#;
        let file = File::parse(text).unwrap();
        let mut texts = file.services[0].2.get("budget").unwrap().texts.clone();
        texts.sort();
        let flags = [
            "class:tcp:CLOSE_WAIT=200:",
            "fds=80%:90%",
            "highest=off",
            "memory=512MiB:1GiB",
            "zombies=50",
        ];
        assert_eq!(texts, flags);
    }

    #[test]
    fn a_wrong_budget_is_an_error_with_its_place() {
        for (line, said) in [
            (
                "fsd = 9",
                "column 7: budget: unknown budget \"fsd\": did you mean \"fds\"?",
            ),
            (
                "fds = { worn = 9 }",
                "column 9: budget: unknown key `worn`: use warn and act",
            ),
            ("fds = \"90%:80%\"", "WARN:ACT"),
            ("fds = true", "budget: fds: \"on\" is not a number"),
            ("fds = -1", "budget: fds: \"-1\" is not a number"),
            ("fds = {}", "level missing"),
            ("fds = [1]", "budget must be a table of levels"),
        ] {
            let text = format!("[service.a]\ncommand = [\"true\"]\n[service.a.budget]\n{line}\n");
            let error = File::parse(&text).unwrap_err().to_string();
            assert!(
                error.contains(said) && error.contains("line 4"),
                "{line}: {error}"
            );
        }
    }
}
