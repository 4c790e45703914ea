//! What to exercise and how, from the command line or a scenario.

use std::ffi::OsString;
use std::path::Path;

use fdguard_core::class_pattern::ClassPattern;
use fdguard_core::glob::Glob;
use fdguard_core::proof::Allowance;
use fdguard_core::proof::scenario::{Exercise, Scenario, Work};

use crate::cli::{CheckArgs, ReadyArg};
use crate::exit::HintedError;
use crate::input;

/// What is exercised.
#[derive(Debug)]
pub(in crate::command::check) struct Plan {
    pub(super) command: Vec<OsString>,
    pub(super) ready: Option<ReadyArg>,
    pub(super) settle: Option<String>,
    pub(super) limit: Option<u64>,
    pub(super) allow: Vec<Allowance>,
    pub(super) allow_process: Vec<Glob>,
    pub(super) budgets: Vec<(ClassPattern, u64)>,
    pub(super) drills: Vec<Drill>,
}

/// One exercise.
#[derive(Debug)]
pub(super) struct Drill {
    pub(super) name: Option<String>,
    pub(super) work: Work,
    pub(super) cycles: u32,
    pub(super) warmup: u32,
    pub(super) concurrency: u32,
}

impl Drill {
    /// Its name in messages.
    pub(super) fn title(&self) -> String {
        let name = self.name.as_ref();
        name.map_or_else(
            || "exercise".to_owned(),
            |name| format!("exercise {name:?}"),
        )
    }
}

impl Plan {
    /// One command, repeated.
    pub(in crate::command::check) fn of_command(args: &CheckArgs, command: &str) -> Self {
        let one = &args.exercise;
        Self {
            command: args.command.clone(),
            ready: one.ready.clone(),
            settle: one.settle.clone(),
            limit: args.limit,
            allow: args.leave.allow.clone(),
            allow_process: args.leave.allow_process.clone(),
            budgets: Vec::new(),
            drills: vec![Drill {
                name: None,
                work: Work::Command {
                    run: command.to_owned(),
                    must_fail: false,
                },
                cycles: one.cycles,
                warmup: one.warmup,
                concurrency: one.concurrency,
            }],
        }
    }

    /// The plan of a file; the command line takes precedence.
    pub(in crate::command::check) fn of_file(
        args: &CheckArgs,
        path: &Path,
    ) -> anyhow::Result<Self> {
        let text = input::read_text(path)?;
        let wrong = |what: String| {
            let hint = "see docs/guide/check.md for all keys";
            HintedError::usage(format!("{}: {what}", path.display()), hint)
        };
        let scenario = Scenario::parse(&text).map_err(|error| wrong(error.to_string()))?;
        let ready = match (&args.exercise.ready, scenario.ready) {
            (Some(ready), _) => Some(ready.clone()),
            (None, Some((text, place))) => {
                let parsed: Result<ReadyArg, String> = text.parse();
                Some(parsed.map_err(|error| wrong(format!("{place}: {error}")))?)
            }
            (None, None) => None,
        };
        let command = if args.command.is_empty() {
            scenario.server.into_iter().map(OsString::from).collect()
        } else {
            args.command.clone()
        };
        let is_running = args.exercise.pid.is_some() || !args.exercise.groups.is_empty();
        if command.is_empty() && !is_running {
            return Err(
                wrong("no server: name one in the file or on the command line".to_owned()).into(),
            );
        }
        let both = |mut file: Vec<Allowance>| {
            file.extend(args.leave.allow.iter().cloned());
            file
        };
        let mut allow_process = scenario.allow_process;
        allow_process.extend(args.leave.allow_process.iter().cloned());
        Ok(Self {
            command,
            ready,
            settle: args.exercise.settle.clone().or(scenario.settle),
            limit: args.limit.or(scenario.limit),
            allow: both(scenario.allow),
            allow_process,
            budgets: scenario.budgets,
            drills: scenario
                .exercises
                .into_iter()
                .map(|one| drill(args, one))
                .collect(),
        })
    }
}

fn drill(args: &CheckArgs, one: Exercise) -> Drill {
    let all = &args.exercise;
    Drill {
        name: Some(one.name),
        work: one.work,
        cycles: one.cycles.unwrap_or(all.cycles),
        warmup: one.warmup.unwrap_or(all.warmup),
        concurrency: one.concurrency.unwrap_or(all.concurrency),
    }
}
