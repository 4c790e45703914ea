//! How a watch is judged: the user's file, then what the command line says.

use std::path::Path;

use fdguard_core::config::Config;
use fdguard_core::playbook::Playbook;
use fdguard_core::rule::Settings;
use jiff::Zoned;

use crate::cli::SettingsArgs;
use crate::exit::HintedError;
use crate::input;

/// The file that is read when nobody names one.
const DEFAULT_FILE: &str = "fdguard.toml";

/// Everything that was set.
pub(super) fn settings(args: &SettingsArgs) -> anyhow::Result<Settings> {
    let config = config(args)?;
    let mut levels = config.levels;
    levels.warning = args.warn_at.unwrap_or(levels.warning);
    levels.critical = args.critical_at.unwrap_or(levels.critical);
    levels.absolute = args.max.or(levels.absolute);
    if !(0.0 < levels.warning && levels.warning <= levels.critical && levels.critical <= 100.0) {
        let (warning, critical) = (levels.warning, levels.critical);
        return Err(HintedError::usage(
            format!("--warn-at {warning} and --critical-at {critical} are no levels"),
            "0 < --warn-at <= --critical-at <= 100",
        )
        .into());
    }
    let mut expectations = config.expectations;
    expectations.extend(args.expect.iter().cloned());
    // What the file names lies beside the file, wherever we were called.
    let beside = args.config.as_deref().and_then(Path::parent);
    let configured = config.playbook.map(|name| match beside {
        Some(folder) => folder.join(name),
        None => name.into(),
    });
    let own = args.playbook.as_deref().or(configured.as_deref());
    Ok(Settings {
        levels,
        expectations,
        ledger: config.ledger,
        playbook: playbook(own)?,
        today: Zoned::now().date(),
    })
}

fn config(args: &SettingsArgs) -> anyhow::Result<Config> {
    let file = args.config.as_deref();
    let path = file.unwrap_or(Path::new(DEFAULT_FILE));
    if file.is_none() && !path.is_file() {
        return Ok(Config::default());
    }
    let text = input::read_text(path)?;
    Config::parse(&text).map_err(|error| {
        let hint = "see the guide: docs/examples/fdguard.toml has every key";
        HintedError::usage(format!("{}: {error}", path.display()), hint).into()
    })
}

/// Ours, with the user's before it.
pub(super) fn playbook(file: Option<&Path>) -> anyhow::Result<Playbook> {
    let ours = Playbook::embedded();
    let Some(path) = file else {
        return Ok(ours);
    };
    let user = Playbook::parse(&input::read_text(path)?).map_err(|error| {
        let hint = "`fdguard explain --list` shows entries of the right form";
        HintedError::usage(format!("{}: {error}", path.display()), hint)
    })?;
    Ok(ours.extended_by(user))
}
