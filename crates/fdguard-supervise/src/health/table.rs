//! A check in the configuration: a string like the flag's, or a table. Its times are texts under
//! the names of the flag's options (`period = "10s"`), or numbers under Kubernetes' names.

use std::fmt;
use std::time::Duration;

use fdguard_core::units;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::series::Timing;
use super::spec::{self, CheckSpec, Kind, Page};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    tcp: Option<Port>,
    http: Option<String>,
    exec: Option<String>,
    notify: Option<bool>,
    fd: Option<u32>,
    line: Option<String>,
    up: Option<String>,
    accept: Option<bool>,
    status: Option<Port>,
    body: Option<String>,
    delay: Option<String>,
    initial_delay_seconds: Option<f64>,
    period: Option<String>,
    period_seconds: Option<f64>,
    timeout: Option<String>,
    timeout_seconds: Option<f64>,
    success_threshold: Option<u32>,
    failure_threshold: Option<u32>,
}

/// `8080` or `"localhost:8080"`; `200` or `"200-299"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Port {
    Number(u16),
    Text(String),
}

impl Port {
    fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

impl<'de> Deserialize<'de> for CheckSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either)
    }
}

/// Not an untagged enum: that would lose which key was wrong.
struct Either;

impl<'de> Visitor<'de> for Either {
    type Value = CheckSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a check such as \"tcp:8080\", or a table")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<CheckSpec, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CheckSpec, A::Error> {
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        table.spec().map_err(A::Error::custom)
    }
}

impl Table {
    fn spec(self) -> Result<CheckSpec, String> {
        let timing = self.timing()?;
        if self.http.is_none() && (self.status.is_some() || self.body.is_some()) {
            return Err("status and body apply only to http".to_owned());
        }
        let kinds = [
            self.tcp.map(|port| Ok(Kind::Tcp(port.text().parse()?))),
            self.http.map(|url| page(&url, self.status, self.body)),
            self.exec.map(|command| Ok(Kind::Exec(command))),
            self.notify.and_then(|on| on.then_some(Ok(Kind::Notify))),
            self.fd.map(spec::newline_of),
            self.line.map(|pattern| Ok(Kind::Line(pattern.parse()?))),
            self.up
                .map(|time| Ok(Kind::Up(units::parse_duration(&time)?))),
            self.accept.and_then(|on| on.then_some(Ok(Kind::Accept))),
        ];
        let mut kinds = kinds.into_iter().flatten();
        let kind = kinds
            .next()
            .ok_or("a check needs one of tcp, http, exec, notify, fd, line, up, accept")??;
        if kinds.next().is_some() {
            return Err(
                "a check must have only one of tcp, http, exec, notify, fd, line, up, accept"
                    .to_owned(),
            );
        }
        Ok(CheckSpec { kind, timing })
    }

    fn timing(&self) -> Result<Timing, String> {
        let usual = Timing::default();
        let timing = Timing {
            initial_delay: time("delay", self.delay.as_deref(), self.initial_delay_seconds)?
                .unwrap_or(usual.initial_delay),
            period: time("period", self.period.as_deref(), self.period_seconds)?
                .unwrap_or(usual.period),
            timeout: time("timeout", self.timeout.as_deref(), self.timeout_seconds)?
                .unwrap_or(usual.timeout),
            success_threshold: self.success_threshold.unwrap_or(usual.success_threshold),
            failure_threshold: self.failure_threshold.unwrap_or(usual.failure_threshold),
        };
        timing.check()?;
        Ok(timing)
    }
}

/// A time that is given as a text, as seconds, or not at all.
fn time(name: &str, text: Option<&str>, seconds: Option<f64>) -> Result<Option<Duration>, String> {
    match (text, seconds) {
        (Some(_), Some(_)) => Err(format!("{name} is given twice: as a text and in seconds")),
        (Some(text), None) => units::parse_duration(text).map(Some),
        (None, Some(seconds)) => units::duration_from_seconds(seconds)
            .map(Some)
            .ok_or_else(|| format!("{seconds} is not a time in seconds")),
        (None, None) => Ok(None),
    }
}

fn page(url: &str, status: Option<Port>, body: Option<String>) -> Result<Kind, String> {
    Ok(Kind::Http(Page {
        url: url.parse()?,
        status: match status {
            Some(status) => spec::statuses(&status.text())?,
            None => spec::WELL,
        },
        body: body.map(|pattern| pattern.parse()).transpose()?,
    }))
}
