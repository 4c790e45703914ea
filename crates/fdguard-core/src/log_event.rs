//! Log events of long-running commands: one line each, in a form that scripts can rely on.
//!
//! `fdguard_event event=restart service=web reason=fd_budget count=912`: the name first, then the
//! service, then fields in a fixed order. Names and fields are public interface; new ones may be
//! added. Unknown values are omitted here and `null` in JSON.

use std::fmt;

use jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEvent {
    name: &'static str,
    service: Option<String>,
    fields: Vec<(&'static str, LogValue)>,
}

/// A field's value.
#[derive(Clone, Debug, PartialEq)]
pub enum LogValue {
    /// Words.
    Text(String),
    /// A number.
    Number(i128),
    /// Yes or no.
    Flag(bool),
    /// Seconds, milliseconds, shares: with a fraction.
    Fraction(f64),
    /// Not known.
    Unknown,
}

impl LogEvent {
    /// An event about the whole: the supervisor, the host.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            service: None,
            fields: Vec::new(),
        }
    }

    /// An event about a service.
    #[must_use]
    pub fn for_service(name: &'static str, service: &str) -> Self {
        Self {
            service: Some(service.to_owned()),
            ..Self::new(name)
        }
    }

    /// With one more field.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<LogValue>) -> Self {
        self.fields.push((key, value.into()));
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The line, without its newline.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = format!("fdguard_event event={}", self.name);
        let service = self.service.clone().map(LogValue::Text);
        let fields = service.iter().map(|name| ("service", name));
        let fields = fields.chain(self.fields.iter().map(|(key, value)| (*key, value)));
        for (key, value) in fields {
            if *value != LogValue::Unknown {
                line.push_str(&format!(" {key}={value}"));
            }
        }
        line
    }

    /// The line as JSON, without its newline.
    #[must_use]
    pub fn json(&self, at: Timestamp) -> String {
        let stamped = Stamped { event: self, at };
        // Text and numbers can always be written.
        serde_json::to_string(&stamped).unwrap_or_default()
    }
}

struct Stamped<'e> {
    event: &'e LogEvent,
    at: Timestamp,
}

impl Serialize for Stamped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", "fdguard.event/1")?;
        map.serialize_entry("time", &self.at)?;
        map.serialize_entry("event", self.event.name)?;
        map.serialize_entry("service", &self.event.service)?;
        for (key, value) in &self.event.fields {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl Serialize for LogValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Number(number) => match i64::try_from(*number) {
                Ok(number) => serializer.serialize_i64(number),
                Err(_) => serializer.serialize_u64(u64::try_from(*number).unwrap_or(u64::MAX)),
            },
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Fraction(fraction) => serializer.serialize_f64(*fraction),
            Self::Unknown => serializer.serialize_none(),
        }
    }
}

impl fmt::Display for LogValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) if is_plain(text) => f.write_str(text),
            Self::Text(text) => quoted(text, f),
            Self::Number(number) => number.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::Fraction(fraction) => fraction.fmt(f),
            Self::Unknown => Ok(()),
        }
    }
}

fn is_plain(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:@%+,*".contains(&byte);
    !text.is_empty() && text.bytes().all(is_plain)
}

/// In quotes, without newlines or control characters that a terminal would obey.
fn quoted(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '\'' => f.write_str("'")?,
            c => write!(f, "{}", c.escape_debug())?,
        }
    }
    f.write_str("\"")
}

impl From<&str> for LogValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for LogValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for LogValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<f64> for LogValue {
    fn from(fraction: f64) -> Self {
        Self::Fraction(fraction)
    }
}

impl From<u32> for LogValue {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<i32> for LogValue {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u64> for LogValue {
    fn from(number: u64) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for LogValue {
    fn from(number: usize) -> Self {
        Self::Number(i128::try_from(number).unwrap_or(i128::MAX))
    }
}

impl<T: Into<Self>> From<Option<T>> for LogValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Unknown, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::{LogEvent, LogValue};

    fn restart() -> LogEvent {
        LogEvent::for_service("restart", "web")
            .with("reason", "fd_budget")
            .with("count", 912_u64)
            .with("class", LogValue::from(None::<&str>))
            .with("text", "it said \"no\"\nand\u{1b}[31m left")
    }

    #[test]
    fn a_line_is_one_line_with_quotes_where_needed() {
        assert_eq!(
            restart().line(),
            "fdguard_event event=restart service=web reason=fd_budget count=912 \
             text=\"it said \\\"no\\\"\\nand\\u{1b}[31m left\""
        );
        let empty = LogEvent::new("reload").with("file", "").line();
        assert_eq!(empty, "fdguard_event event=reload file=\"\"");
    }

    #[test]
    fn the_same_as_json_has_a_schema_a_time_and_null_for_the_unknown() {
        let text = restart().json("2026-11-15T12:00:00Z".parse().unwrap());
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["schema"], "fdguard.event/1");
        assert_eq!(value["time"], "2026-11-15T12:00:00Z");
        assert_eq!(
            (&value["count"], &value["class"]),
            (&912.into(), &serde_json::Value::Null)
        );
        assert!(text.starts_with("{\"schema\":\"fdguard.event/1\"") && !text.contains('\n'));
    }
}
