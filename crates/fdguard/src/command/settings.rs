//! Thresholds of a watch: the user's file, overridden by the command line.

use std::path::{Path, PathBuf};

use fdguard_core::config::Config;
use fdguard_core::playbook::Playbook;
use fdguard_core::rule::RuleSettings;
use jiff::Zoned;

use crate::cli::SettingsArgs;
use crate::exit::HintedError;
use crate::input;

/// The file that is read by default.
const DEFAULT_FILE: &str = "fdguard.toml";

/// Settings from the file and the flags.
pub(super) fn settings(args: &SettingsArgs) -> anyhow::Result<RuleSettings> {
    rule_settings(args, config(args)?)
}

/// The same, from a file that was read already.
pub(super) fn rule_settings(args: &SettingsArgs, config: Config) -> anyhow::Result<RuleSettings> {
    let mut levels = config.levels;
    levels.warning = args.warn_at.unwrap_or(levels.warning);
    levels.critical = args.critical_at.unwrap_or(levels.critical);
    levels.absolute = args.max.or(levels.absolute);
    if !(0.0 < levels.warning && levels.warning <= levels.critical && levels.critical <= 100.0) {
        let (warning, critical) = (levels.warning, levels.critical);
        return Err(HintedError::usage(
            levels_problem(warning, critical),
            "choose percentages with 0 < --warn-at <= --critical-at <= 100",
        )
        .into());
    }
    let mut expectations = config.expectations;
    expectations.extend(args.expect.iter().cloned());
    let playbook_file = playbook_file(args, config.playbook);
    Ok(RuleSettings {
        levels,
        expectations,
        suppressions: config.suppressions,
        playbook: playbook(playbook_file.as_deref())?,
        today: Zoned::now().date(),
    })
}

/// The user's playbook, if there is one: `configured` is what the settings name.
pub(super) fn playbook_file(args: &SettingsArgs, configured: Option<String>) -> Option<PathBuf> {
    // Paths in the file are relative to the file, not to the current directory.
    let beside = args.config.as_deref().and_then(Path::parent);
    let configured = configured.map(|name| match beside {
        Some(dir) => dir.join(name),
        None => name.into(),
    });
    args.playbook.clone().or(configured)
}

fn levels_problem(warning: f64, critical: f64) -> String {
    if warning > critical {
        format!("--warn-at ({warning}) must not exceed --critical-at ({critical})")
    } else {
        format!(
            "--warn-at ({warning}) and --critical-at ({critical}) must be above 0 and at most 100"
        )
    }
}

/// The file that is read, if there is one.
pub(super) fn config_file(args: &SettingsArgs) -> Option<&Path> {
    let usual = Path::new(DEFAULT_FILE);
    args.config.as_deref().or(usual.is_file().then_some(usual))
}

/// What is in that file.
pub(super) fn config(args: &SettingsArgs) -> anyhow::Result<Config> {
    let Some(path) = config_file(args) else {
        return Ok(Config::default());
    };
    let text = input::read_text(path)?;
    Config::parse(&text).map_err(|error| {
        let hint = "see docs/examples/fdguard.toml for every key";
        HintedError::usage(format!("{}: {error}", path.display()), hint).into()
    })
}

/// The built-in playbook, preceded by the user's.
pub(super) fn playbook(file: Option<&Path>) -> anyhow::Result<Playbook> {
    let ours = Playbook::embedded();
    let Some(path) = file else {
        return Ok(ours);
    };
    let user = Playbook::parse(&input::read_text(path)?).map_err(|error| {
        let hint = "run `fdguard explain --list --json` to see valid entries";
        HintedError::usage(format!("{}: {error}", path.display()), hint)
    })?;
    Ok(ours.extended_by(user))
}
