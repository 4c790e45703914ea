//! `run --once`: the program to its end, no restart. Its input and output are its own; what was prevented goes to stderr.

use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use fdguard_trace::{GO, Options, Program, Symbols, Traced};
use rustix::process::Signal;

use super::prevented::Teller;
use crate::cli::RunArgs;
use crate::command::trace::asked::{Asked, Request, Woken};
use crate::command::trace::{code_of, own_code};
use crate::exit::{self, Hinted};

/// Time between two looks at what was found.
const LOOKING: Duration = Duration::from_millis(500);

/// Runs the program and gives its status: what is found does not change it.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<u8> {
    run_to_end(args).or_else(|error| {
        let is_ours = error.downcast_ref::<Hinted>().is_some();
        Ok(if is_ours {
            exit::report(&error)
        } else {
            code_of(&error)
        })
    })
}

fn run_to_end(args: &RunArgs) -> anyhow::Result<u8> {
    let protection = args.protect.protection();
    let teller = protection
        .as_ref()
        .map(|protection| Teller::new(protection.report));
    if protection.is_some() {
        refuse_blind(args)?;
    }
    let options = match protection {
        Some(protection) => Options::default().protecting(Some(protection)),
        None => Options::default().without_library(),
    };
    let mut asked = Asked::listen()?;
    let mut traced = Traced::launch(&args.command, options)?;
    let status = match teller {
        Some(teller) => protected(&mut traced, &mut asked, teller)?,
        None => wait(&mut traced, &mut asked, &mut |_| Ok(()))?,
    };
    asked.obey();
    Ok(own_code(status))
}

fn protected(
    traced: &mut Traced,
    asked: &mut Asked,
    mut teller: Teller,
) -> anyhow::Result<Option<ExitStatus>> {
    let mut symbols = Symbols::new();
    let mut counts = Counts::default();
    let status = wait(traced, asked, &mut |traced| {
        counts.take(traced)?;
        teller.tell(&traced.hazards(&mut symbols, false).0);
        teller.tell_unprotected(traced.became());
        Ok(())
    })?;
    let (hazards, gaps) = traced.hazards(&mut symbols, true);
    teller.tell(&hazards);
    counts.take(traced)?;
    teller.tell_unprotected(traced.became());
    teller.conclude(&counts.by_rule(), &gaps);
    Ok(status)
}

/// What was prevented, process by process: the tables of those that end are forgotten.
#[derive(Default)]
struct Counts(BTreeMap<(u32, u64), BTreeMap<&'static str, u64>>);

impl Counts {
    fn take(&mut self, traced: &mut Traced) -> anyhow::Result<()> {
        for table in traced.tables()?.iter() {
            let key = (table.pid, table.began);
            self.0.insert(key, table.prevented.clone());
        }
        traced.tables_of_living()?;
        Ok(())
    }

    fn by_rule(&self) -> BTreeMap<&'static str, u64> {
        let mut sums = BTreeMap::new();
        for (rule, count) in self.0.values().flatten() {
            *sums.entry(*rule).or_default() += count;
        }
        sums
    }
}

/// Waits for the end of the program, and looks from time to time. Absent when we are to leave before.
fn wait(
    traced: &mut Traced,
    asked: &mut Asked,
    look: &mut dyn FnMut(&mut Traced) -> anyhow::Result<()>,
) -> anyhow::Result<Option<ExitStatus>> {
    loop {
        match asked.wait(traced, Instant::now() + LOOKING)? {
            Woken::Ended(status) => return Ok(Some(status)),
            Woken::Asked(Request::End) => traced.signal(Signal::TERM)?,
            // The terminal sent it to the program as well.
            Woken::Asked(Request::Interrupt) => {}
            Woken::Asked(Request::Leave) => return Ok(None),
            Woken::Time => look(traced)?,
        }
    }
}

/// A program that cannot be protected is not started: nobody would notice.
fn refuse_blind(args: &RunArgs) -> anyhow::Result<()> {
    let Some(name) = args.command.first() else {
        return Ok(());
    };
    let program = Program::find(name)?;
    // A Go program with a C part has a loader, and makes its calls past the library all the same.
    let why = match program.blind {
        Some(blind) => blind.why(),
        None if program.is_go => GO,
        None => return Ok(()),
    };
    let message = format!("{} cannot be protected: {why}", name.display());
    let hint = "it was not started; without --protect it runs as it is";
    Err(Hinted::look(message, hint).into())
}
