//! `--explain`: every effective value of the settings, the user's playbook and the scenario, and
//! its source.

use std::path::Path;

use fdguard_core::config::{Expectation, Levels};
use fdguard_core::located::{ConfigMistake, FileText, LocatedValue, SourceList, ValueSource};

use super::exercise::Plan;
use crate::cli::{CheckArgs, ReadyArg};
use crate::command::settings;
use crate::input;

/// The lines. The files are read and checked as for a run.
pub(super) fn explain(args: &CheckArgs) -> anyhow::Result<String> {
    settings::settings(&args.settings)?;
    let mut text = match settings::config_file(&args.settings) {
        Some(path) => of_settings(args, &path.display().to_string(), &input::read_text(path)?)?,
        None => of_settings(args, "", "")?,
    };
    let configured = settings::config(&args.settings)?.playbook;
    if let Some(path) = settings::playbook_file(&args.settings, configured) {
        text.push('\n');
        text.push_str(&of_playbook(&path)?);
    }
    if let Some(path) = &args.exercise.scenario {
        Plan::of_file(args, path)?;
        text.push('\n');
        text.push_str(&of_scenario(args, path)?);
    }
    Ok(text)
}

fn of_settings(args: &CheckArgs, name: &str, text: &str) -> Result<String, ConfigMistake> {
    let (given, usual) = (&args.settings, Levels::default());
    let expected = |one: &Expectation| format!("{}={}*{}", one.name, one.units, one.per_unit);
    let mut rows = Rows::new(name, text)?;
    rows.one("levels.warning", "--warn-at", given.warn_at, usual.warning);
    rows.one(
        "levels.critical",
        "--critical-at",
        given.critical_at,
        usual.critical,
    );
    rows.one("levels.absolute", "--max", given.max, "none");
    let playbook = given.playbook.as_ref().map(|path| path.display());
    rows.one("playbook", "--playbook", playbook, "built-in");
    rows.list("expect", "--expect", given.expect.iter().map(expected));
    Ok(rows.finish())
}

/// The entries of the user's playbook, which replace built-in ones of the same name.
fn of_playbook(path: &Path) -> anyhow::Result<String> {
    let name = path.display().to_string();
    Ok(Rows::new(&name, &input::read_text(path)?)?.finish())
}

fn of_scenario(args: &CheckArgs, path: &Path) -> anyhow::Result<String> {
    let given = &args.exercise;
    let text = input::read_text(path)?;
    let name = path.display().to_string();
    let mut rows = Rows::new(&name, &text)?;
    let server = args.command.iter().map(|word| word.to_string_lossy());
    rows.list("server", "command line", server);
    rows.one("ready", "--ready", given.ready.as_ref().map(ready), "none");
    rows.one("settle", "--settle", given.settle.as_ref(), "none");
    rows.one("limit", "--limit", args.limit, "unchanged");
    rows.list("allow", "--allow", args.leave.allow.iter());
    rows.list(
        "allow_process",
        "--allow-process",
        args.leave.allow_process.iter(),
    );
    for (key, value, usual) in [
        ("cycles", given.cycles, 30),
        ("warmup", given.warmup, 5),
        ("concurrency", given.concurrency, 1),
    ] {
        let flag = Some(value).filter(|value| *value != usual);
        rows.one(key, &format!("--{key}"), flag, usual);
    }
    Ok(rows.finish())
}

fn ready(arg: &ReadyArg) -> String {
    match arg {
        ReadyArg::Tcp { host, port } => format!("tcp:{host}:{port}"),
        ReadyArg::Http { host, port, path } => format!("http://{host}:{port}{path}"),
        ReadyArg::Line(regex) => format!("line:{regex}"),
    }
}

/// The values of one file, with what the command line says instead or in addition.
struct Rows<'f> {
    list: SourceList<'f>,
    /// What the file sets and is not listed yet.
    rest: Vec<LocatedValue>,
}

impl<'f> Rows<'f> {
    fn new(name: &'f str, text: &str) -> Result<Self, ConfigMistake> {
        Ok(Self {
            list: SourceList::new(Some(name)),
            rest: FileText(text).values()?,
        })
    }

    /// A value that a flag overrides.
    fn one(&mut self, key: &str, flag: &str, given: Option<impl ToString>, usual: impl ToString) {
        let written = self.take(key);
        match (given, written) {
            (Some(given), _) => {
                let texts = [given.to_string()];
                self.list.value(key, &texts, ValueSource::Flag, flag);
            }
            (None, Some(value)) => self.list.located(&value),
            (None, None) => {
                let texts = [usual.to_string()];
                self.list.value(key, &texts, ValueSource::Default, flag);
            }
        }
    }

    /// Values that a flag adds.
    fn list(&mut self, key: &str, flag: &str, given: impl Iterator<Item = impl ToString>) {
        if let Some(value) = self.take(key) {
            self.list.located(&value);
        }
        let given: Vec<String> = given.map(|one| one.to_string()).collect();
        if !given.is_empty() {
            self.list.value(key, &given, ValueSource::Flag, flag);
        }
    }

    fn take(&mut self, key: &str) -> Option<LocatedValue> {
        let at = self.rest.iter().position(|value| value.key == key)?;
        Some(self.rest.remove(at))
    }

    /// Lists the other values of the file.
    fn finish(mut self) -> String {
        for value in &self.rest {
            self.list.located(value);
        }
        self.list.into_text()
    }
}
