//! The shape of help: `-h` fits a screen, `--help` has everything, the top level lists commands in
//! groups.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};

use super::Cli;

/// Heading of the options that every command has; they come last on each page.
pub(super) const GLOBAL: &str = "Global options";

/// Commands of one group, under its heading.
struct Group {
    heading: &'static str,
    commands: &'static [&'static str],
}

const GROUPS: &[Group] = &[
    Group {
        heading: "Find",
        commands: &["top", "snap", "diff", "watch", "doctor", "explain"],
    },
    Group {
        heading: "Trace and prove",
        commands: &["trace", "why", "check", "inspect"],
    },
    Group {
        heading: "Survive",
        commands: &["run", "drill"],
    },
    Group {
        heading: "Host",
        commands: &["serve", "host"],
    },
];

/// Listed in the complete help only.
const OTHER: Group = Group {
    heading: "Other",
    commands: &["unit", "fleet", "history", "archive", "completions"],
};

/// The options, by id, that `-h` shows for each command: at most five.
const SHORT: &[(&str, &[&str])] = &[
    ("top", &["once", "json", "interval", "filter", "output"]),
    ("snap", &["name", "tree", "fds", "json", "output"]),
    ("diff", &["json", "output", "exit_code", "fail_on"]),
    ("watch", &["length", "tree", "record", "json", "output"]),
    ("doctor", &["length", "log", "output", "html", "redact"]),
    ("explain", &["pid", "class", "search", "json", "output"]),
    ("trace", &["length", "follow", "html", "json", "output"]),
    ("why", &["wait", "json", "output"]),
    ("check", &["exercise", "ready", "allow", "json", "output"]),
    ("inspect", &["check", "heal", "watch", "json", "output"]),
    ("run", &["config", "restart", "listen", "ready", "budget"]),
    ("unit", &["lint", "name", "listen", "user", "output"]),
    ("drill", &["ready", "listen", "within", "json", "output"]),
    (
        "host",
        &["listen", "state", "mcp", "max_sessions", "token_file"],
    ),
    (
        "serve",
        &["every", "listen", "budget", "keep", "token_file"],
    ),
    ("fleet", &["from", "sort", "fail_on", "json", "output"]),
    ("history", &["since", "at", "state", "json", "output"]),
    ("archive", &["to", "wait", "follow", "json", "output"]),
];

/// The command line with help in this shape.
pub(super) fn command() -> Command {
    let mut root = Cli::command();
    let names: Vec<String> = root
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect();
    for name in names {
        root = root.mut_subcommand(&name, |command| with_short_help(command, &name));
    }
    root = root.mut_args(|arg| arg.hide_short_help(true));
    let short = list_commands(&root, GROUPS.iter(), "\n");
    let long = list_commands(&root, GROUPS.iter().chain([&OTHER]), "\n\n");
    let options = list_options(&root);
    let exit_codes = super::EXIT_CODES;
    root.help_template("{about-with-newline}\n{usage-heading} {usage}{after-help}")
        .after_help(format!(
            "{short}\n\nRun `fdguard COMMAND -h` for a summary, `fdguard COMMAND --help` for everything."
        ))
        .after_long_help(format!("{long}\n\n{options}\n\n{exit_codes}"))
}

/// Hides the options that are not in the table from `-h`.
fn with_short_help(command: Command, name: &str) -> Command {
    let shown = SHORT.iter().find(|(command, _)| *command == name);
    let shown = shown.map_or(&[][..], |(_, options)| *options);
    command
        .mut_args(|arg| {
            let is_shown = arg.is_positional() || shown.contains(&arg.get_id().as_str());
            arg.hide_short_help(!is_shown)
        })
        .after_help(format!(
            "Run `fdguard {name} --help` for all options and examples."
        ))
}

/// Without colours: clap counts them as text when it breaks lines.
fn list_commands(
    root: &Command,
    groups: impl Iterator<Item = &'static Group>,
    between: &str,
) -> String {
    let mut blocks = Vec::new();
    for group in groups {
        let mut block = format!("{}:", group.heading);
        for name in group.commands {
            let about = root.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = write!(block, "\n  {name:<8} {about}");
        }
        blocks.push(block);
    }
    blocks.join(between)
}

fn list_options(root: &Command) -> String {
    let mut text = format!("{GLOBAL}:");
    for arg in root.get_arguments() {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let flags = flags(arg);
        let _ = write!(text, "\n  {flags:<20}{help}");
    }
    text
}

/// `-V, --version`, or `    --color <WHEN>`. An argument's own text needs a built command.
fn flags(arg: &Arg) -> String {
    let short = arg.get_short();
    let short = short.map_or_else(|| "    ".to_owned(), |short| format!("-{short}, "));
    let long = arg.get_long().unwrap_or_default();
    let value = arg.get_value_names().and_then(<[_]>::first);
    let value = value.filter(|_| arg.get_action().takes_values());
    let value = value.map_or_else(String::new, |value| format!(" <{value}>"));
    format!("{short}--{long}{value}")
}

#[cfg(test)]
mod tests {
    use super::{GROUPS, OTHER, SHORT, command};

    #[test]
    fn every_command_is_in_one_group_and_every_short_option_exists() {
        let root = command();
        let mut listed: Vec<&str> = GROUPS
            .iter()
            .chain([&OTHER])
            .flat_map(|group| group.commands.iter().copied())
            .collect();
        let mut defined: Vec<&str> = root
            .get_subcommands()
            .map(clap::Command::get_name)
            .collect();
        listed.sort_unstable();
        defined.sort_unstable();
        assert_eq!(listed, defined);
        for (name, options) in SHORT {
            let command = root.find_subcommand(name).unwrap();
            for option in *options {
                let found = command.get_arguments().any(|arg| arg.get_id() == option);
                assert!(found, "{name} has no option {option}");
            }
            assert!(options.len() <= 5, "{name}");
        }
    }

    #[test]
    fn the_shaped_definitions_hold_together() {
        command().debug_assert();
    }
}
