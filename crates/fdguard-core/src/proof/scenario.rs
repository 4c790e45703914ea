//! `--scenario FILE.toml`: a server and several named exercises of it.
//!
//! A file with a mistake is refused as a whole, with its line and column.

use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::Allowance;
use crate::class_pattern::ClassPattern;
use crate::glob::Glob;
use crate::located::{ConfigMistake, FilePosition, FileText};
use crate::units;

/// How long a request waits for its response if the file does not say.
const USUAL_PATIENCE: Duration = Duration::from_millis(100);

/// The content of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The server and its arguments; empty where the command line names it.
    pub server: Vec<String>,
    /// The readiness check, in the form of `--ready`, and its position in the file.
    pub ready: Option<(String, FilePosition)>,
    /// A command that makes the server release its descriptors.
    pub settle: Option<String>,
    /// Soft limit of descriptors of the server.
    pub limit: Option<u64>,
    /// What may stay open.
    pub allow: Vec<Allowance>,
    /// Which processes may outlive it.
    pub allow_process: Vec<Glob>,
    /// The most descriptors of a class that the server may hold at the end.
    pub budgets: Vec<(ClassPattern, u64)>,
    /// The exercises, in order.
    pub exercises: Vec<Exercise>,
}

/// One exercise.
#[derive(Clone, Debug, PartialEq)]
pub struct Exercise {
    /// Its name.
    pub name: String,
    /// What a cycle does.
    pub work: Work,
    /// Cycles that count; absent: taken from the command line.
    pub cycles: Option<u32>,
    /// Cycles before them; absent: taken from the command line.
    pub warmup: Option<u32>,
    /// Concurrent cycles; absent: taken from the command line.
    pub concurrency: Option<u32>,
}

/// What a cycle does.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Runs a shell command, which must succeed, or fail.
    Command {
        /// The command.
        run: String,
        /// Whether it must fail.
        must_fail: bool,
    },
    /// Connects, sends, and disconnects with a reset, without reading.
    TcpDisconnect {
        /// Host and port.
        address: String,
        /// What is sent.
        send: String,
    },
    /// Sends a request and stops waiting for the response.
    HttpTimeout {
        /// Host and port.
        address: String,
        /// Path and query.
        path: String,
        /// How long it waits.
        after: Duration,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    server: Vec<String>,
    ready: Option<Spanned<String>>,
    settle: Option<String>,
    limit: Option<u64>,
    #[serde(default)]
    allow: Vec<Spanned<String>>,
    #[serde(default)]
    allow_process: Vec<String>,
    #[serde(default)]
    budget: std::collections::BTreeMap<Spanned<String>, u64>,
    #[serde(default)]
    exercise: Vec<Spanned<Table>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: Spanned<String>,
    run: Option<String>,
    must: Option<Spanned<String>>,
    kind: Option<Spanned<String>>,
    address: Option<String>,
    send: Option<String>,
    path: Option<String>,
    after: Option<Spanned<String>>,
    after_ms: Option<u64>,
    cycles: Option<Spanned<u32>>,
    warmup: Option<u32>,
    concurrency: Option<Spanned<u32>>,
}

impl Scenario {
    /// Reads the text of the file.
    pub fn parse(text: &str) -> Result<Self, ConfigMistake> {
        let text = FileText(text);
        let file: File = text.read()?;
        let allow = file.allow.iter().map(|one| {
            let parsed = one.get_ref().parse();
            parsed.map_err(|error: super::BadAllowance| text.mistake(one, "allow", error))
        });
        let budgets = file.budget.iter().map(|(class, most)| {
            let parsed: Result<ClassPattern, _> = class.get_ref().parse();
            let parsed = parsed.map_err(|error| text.mistake(class, "", error))?;
            Ok((parsed, *most))
        });
        if file.exercise.is_empty() {
            let start = text.source(&(0..0));
            return Err(ConfigMistake::new(start, "", "no [[exercise]] found"));
        }
        Ok(Self {
            server: file.server,
            ready: file.ready.map(|one| {
                let place = FilePosition::from_span(text.0, &one.span());
                (one.into_inner(), place)
            }),
            settle: file.settle,
            limit: file.limit,
            allow: allow.collect::<Result<_, _>>()?,
            allow_process: file.allow_process.into_iter().map(Glob::from).collect(),
            budgets: budgets.collect::<Result<_, _>>()?,
            exercises: exercises(text, &file.exercise)?,
        })
    }
}

fn exercises(
    text: FileText<'_>,
    tables: &[Spanned<Table>],
) -> Result<Vec<Exercise>, ConfigMistake> {
    let mut exercises: Vec<Exercise> = Vec::new();
    for table in tables {
        let one = exercise(text, table)?;
        if exercises.iter().any(|other| other.name == one.name) {
            return Err(text.mistake(&table.get_ref().name, "", "duplicate exercise name"));
        }
        exercises.push(one);
    }
    Ok(exercises)
}

fn exercise(text: FileText<'_>, table: &Spanned<Table>) -> Result<Exercise, ConfigMistake> {
    let one = table.get_ref();
    let within = |value: &Option<Spanned<u32>>, range: Range<u32>, what: &str| match value {
        Some(value) if !range.contains(value.get_ref()) => Err(text.mistake(
            value,
            "",
            format!("{what} must be from {} to {}", range.start, range.end - 1),
        )),
        value => Ok(value.as_ref().map(|value| *value.get_ref())),
    };
    Ok(Exercise {
        name: one.name.get_ref().clone(),
        work: work(text, table)?,
        cycles: within(&one.cycles, 10..100_001, "cycles")?,
        warmup: one.warmup,
        concurrency: within(&one.concurrency, 1..1025, "concurrency")?,
    })
}

fn work(text: FileText<'_>, table: &Spanned<Table>) -> Result<Work, ConfigMistake> {
    let one = table.get_ref();
    let wrong = |message: &str| text.mistake(&one.name, "", message);
    let must_fail = match &one.must {
        None => false,
        Some(must) => match must.get_ref().as_str() {
            "succeed" => false,
            "fail" => true,
            _ => {
                return Err(text.mistake(must, "", "`must` has to be \"succeed\" or \"fail\""));
            }
        },
    };
    let Some(kind) = &one.kind else {
        let run = one.run.clone();
        let run = run.ok_or_else(|| wrong("an exercise needs `run` or `kind`"))?;
        return Ok(Work::Command { run, must_fail });
    };
    if one.run.is_some() || one.must.is_some() {
        return Err(text.mistake(kind, "", "`kind` cannot be combined with `run` or `must`"));
    }
    let address = one.address.clone().filter(|text| is_address(text));
    let address =
        address.ok_or_else(|| wrong("this kind needs an address, for example 127.0.0.1:8080"))?;
    match kind.get_ref().as_str() {
        "tcp-disconnect" => Ok(Work::TcpDisconnect {
            address,
            send: one.send.clone().unwrap_or_default(),
        }),
        "http-timeout" => Ok(Work::HttpTimeout {
            address,
            path: one.path.clone().unwrap_or_else(|| "/".to_owned()),
            after: after(text, one)?,
        }),
        _ => Err(text.mistake(
            kind,
            "",
            "`kind` must be \"tcp-disconnect\" or \"http-timeout\"; use `run` for a command",
        )),
    }
}

/// How long a request waits for its response: `after = "100ms"`, or the same as `after_ms = 100`.
fn after(text: FileText<'_>, one: &Table) -> Result<Duration, ConfigMistake> {
    match (&one.after, one.after_ms) {
        (Some(after), Some(_)) => {
            Err(text.mistake(after, "", "`after` cannot be combined with `after_ms`"))
        }
        (Some(after), None) => {
            let length = units::parse_positive_duration(after.get_ref());
            length.map_err(|error| text.mistake(after, "after", error))
        }
        (None, given) => Ok(given.map_or(USUAL_PATIENCE, Duration::from_millis)),
    }
}

fn is_address(text: &str) -> bool {
    let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    matches!(port, Some(Ok(port)) if port > 0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Scenario, Work};

    const WHOLE: &str = "\
server = [\"./server\", \"8080\"]
ready = \"tcp:8080\"
limit = 64
allow = [\"sqlite-*\", \"/var/log/*\"]
allow_process = [\"helper*\"]

[budget]
\"tcp:*\" = 20

[[exercise]]
name = \"login\"
run = \"curl -fs localhost:8080/login\"
cycles = 50

[[exercise]]
name = \"a door that is shut\"
run = \"./client --wrong\"
must = \"fail\"

[[exercise]]
name = \"the client goes away\"
kind = \"tcp-disconnect\"
address = \"127.0.0.1:8080\"
send = \"GET / HTTP/1.1\\r\\n\"
";

    #[test]
    fn r35_a_whole_file_is_read() {
        let scenario = Scenario::parse(WHOLE).unwrap();
        assert_eq!(scenario.server, ["./server", "8080"]);
        assert_eq!((scenario.allow.len(), scenario.budgets[0].1), (2, 20));
        let names: Vec<&str> = scenario
            .exercises
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(
            names,
            ["login", "a door that is shut", "the client goes away"]
        );
        assert_eq!(scenario.exercises[0].cycles, Some(50));
        assert!(matches!(
            scenario.exercises[1].work,
            Work::Command {
                must_fail: true,
                ..
            }
        ));
        assert!(matches!(
            scenario.exercises[2].work,
            Work::TcpDisconnect { .. }
        ));
    }

    #[test]
    fn patience_is_a_time_or_a_number_of_milliseconds() {
        let read = |line: &str| {
            let head = "[[exercise]]\nname = \"a\"\nkind = \"http-timeout\"\naddress = \"h:1\"\n";
            Scenario::parse(&format!("{head}{line}"))
        };
        for (line, milliseconds) in [
            ("", 100),
            ("after_ms = 20\n", 20),
            ("after = \"250ms\"\n", 250),
            ("after = \"1.5s\"\n", 1500),
        ] {
            let scenario = read(line).unwrap();
            let Work::HttpTimeout { after, .. } = scenario.exercises[0].work else {
                panic!("{line}");
            };
            assert_eq!(after, Duration::from_millis(milliseconds), "{line}");
        }
        let said = |line: &str| read(line).unwrap_err().to_string();
        let wrong = said("after = \"soon\"\n");
        assert!(
            wrong.starts_with("line 5, column 9: after: 'soon' is not a time"),
            "{wrong}"
        );
        let both = said("after = \"1s\"\nafter_ms = 5\n");
        assert_eq!(
            both,
            "line 5, column 9: `after` cannot be combined with `after_ms`"
        );
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_column() {
        let said = |text: &str| Scenario::parse(text).unwrap_err().to_string();
        let one = "[[exercise]]\nname = \"a\"\nrun = \"true\"\n";
        let unknown = said(&format!("{one}cylces = 30\n"));
        assert!(
            unknown.starts_with("line 4, column 1: unknown field `cylces`"),
            "{unknown}"
        );
        let unknown = said("raedy = \"tcp:1\"\n");
        assert!(
            unknown.starts_with("line 1, column 1: unknown field `raedy`"),
            "{unknown}"
        );
        let class = said(&format!("{one}[budget]\n\"tpc\" = 3\n"));
        assert!(
            class.starts_with("line 5, column 1: unknown descriptor class"),
            "{class}"
        );
        let few = said(&format!("{one}cycles = 3\n"));
        assert_eq!(few, "line 4, column 10: cycles must be from 10 to 100000");
        let twice = said(&format!("{one}{one}"));
        assert_eq!(twice, "line 5, column 8: duplicate exercise name");
        assert!(said("").ends_with("no [[exercise]] found"));
        let kind = said("[[exercise]]\nname = \"a\"\nkind = \"dance\"\naddress = \"h:1\"\n");
        assert!(
            kind.starts_with("line 3, column 8: `kind` must be"),
            "{kind}"
        );
        let syntax = said("exercise = [\n");
        assert!(syntax.starts_with("line "), "{syntax}");
    }
}
