//! Writes a service of Docker Compose.

use std::fmt::Write as _;

use fdguard_core::rule::RuleTable;

use super::lint::{self, Check, Unit};
use super::read::{self, UnitNode, UnreadableUnit};
use super::{UnitError, UnitKind, UnitSpec};

/// Where `fdguard run` answers the health check by default.
const METRICS: &str = "127.0.0.1:9464";

/// Services of Docker Compose.
pub(super) struct Compose;

impl UnitKind for Compose {
    fn name(&self) -> &'static str {
        "compose"
    }

    fn signs(&self) -> (&'static [&'static str], &'static [&'static str]) {
        (&["yml", "yaml"], &["services:"])
    }

    fn write(&self, spec: &UnitSpec) -> Result<String, UnitError> {
        let metrics = spec.metrics.clone().unwrap_or_else(|| METRICS.to_owned());
        let spec = &UnitSpec {
            metrics: Some(metrics.clone()),
            ..spec.clone()
        };
        let command: Vec<String> = spec.words().iter().map(|word| quote(word)).collect();
        let image = match &spec.image {
            Some(image) => format!("image: {}", quote(image)),
            None => "build: .".to_owned(),
        };
        let dir = match &spec.dir {
            Some(dir) => format!("    working_dir: {}\n", quote(dir)),
            None => String::new(),
        };
        let url = format!("http://{metrics}/health");
        let check = format!("wget -q -O /dev/null {url} || curl -fsS -o /dev/null {url}");
        let (soft, hard) = spec.files;
        let restart = if spec.restart == "never" {
            "\"no\""
        } else {
            "on-failure:5"
        };
        Ok(format!(
            "# Written by `fdguard unit compose`. The image needs fdguard, and wget or curl for the health check.
services:
  {name}:
    {image}
    command: [{command}]
{dir}    # Reaps orphaned processes.
    init: true
    restart: {restart}
    # Must exceed fdguard's grace period, or fdguard is killed while it stops the program.
    stop_grace_period: {patience}s
    ulimits:
      nofile:
        soft: {soft}
        hard: {hard}
    healthcheck:
      test: [\"CMD-SHELL\", {check}]
      interval: 30s
      timeout: 5s
      retries: 3
      start_period: 30s
",
            name = quote(&spec.name),
            command = command.join(", "),
            patience = spec.patience(),
            check = quote(&check),
        ))
    }

    fn read(&self, text: &str) -> Result<UnitNode, UnreadableUnit> {
        read::yaml::read(text)
    }

    fn services<'a>(&self, file: &'a UnitNode) -> Vec<Unit<'a>> {
        lint::compose::units(file)
    }

    fn rules(&self) -> RuleTable<Check> {
        lint::compose::RULES
    }
}

/// A YAML string in double quotes; `$` is doubled, or Compose would expand it as a variable.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        let code = u32::from(c);
        let is_printable = matches!(code, 0x20..=0x7e | 0xa0..=0xd7ff | 0xe000..=0xfefe | 0xff00..=0xfffd)
            && !matches!(code, 0x2028 | 0x2029);
        // Writing to a string cannot fail.
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '$' => quoted.push_str("$$"),
            c if is_printable => quoted.push(c),
            _ => {
                let _ = write!(quoted, "\\U{code:08x}");
            }
        }
    }
    quoted.push('"');
    quoted
}
