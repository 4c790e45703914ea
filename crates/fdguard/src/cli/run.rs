//! Arguments of `fdguard run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::protect::ProtectArgs;

/// Keep this service alive: a foreground supervisor with a descriptor budget.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fdguard run -- python3 server.py                 restart it when it fails or nears its limit
  fdguard run --listen tcp:8787 -- ./server        own the socket: no connection is refused over a restart
  fdguard run --ready tcp:8787 --budget fds=80%:90% -- ./server
  fdguard run --config services.toml               several services, with dependencies
  fdguard run --explain --config services.toml     which value holds, and who said so
  fdguard run --once -- ./job                      no restart; nothing it started stays behind
  fdguard run --exec -- ./server                   only raise the limit and become the program
Signals: TERM and INT stop (a second INT at once), HUP reloads the file, QUIT tells the state, USR1 opens the
logs anew; all others go to the program.
Exit codes: 0 stopped as asked or done; that of the program when it stays down, 128+n after signal n; 126 and
127 when it cannot be run; 1 when it stays down without a failing status; 2 wrong usage, or its port is
somebody else's; 75 when a budget asks the parent for a restart (--restart never); 78 a mistake in the file.")]
pub struct RunArgs {
    /// Run the program to its end and pass on its status: no restart.
    #[arg(long)]
    pub once: bool,
    /// Become the program: the same process, with its limit raised and nothing watched.
    #[arg(long, conflicts_with_all = ["once", "config", "trace", "protect"])]
    pub exec: bool,
    /// Run below another `fdguard run`.
    #[arg(long)]
    pub nest: bool,
    /// Services from a file, with dependencies; flags override what it says of each.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "once"])]
    pub config: Option<PathBuf>,
    /// Print every value that holds, and where it comes from, and start nothing.
    #[arg(long)]
    pub explain: bool,
    /// What the service is called; the program's name when absent.
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub name: Option<String>,
    /// Start it in this folder.
    #[arg(long, value_name = "DIR")]
    pub folder: Option<String>,
    /// Set a variable for it; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub env: Vec<String>,
    /// When it is started again.
    #[command(flatten)]
    pub restart: RestartArgs,
    /// What it is given.
    #[command(flatten)]
    pub sockets: SocketArgs,
    /// How one knows that it works.
    #[command(flatten)]
    pub health: HealthArgs,
    /// What it may use.
    #[command(flatten)]
    pub budgets: BudgetArgs,
    /// Where it is told.
    #[command(flatten)]
    pub output: RunOutputArgs,
    /// Put the tracer into it: a breach names the line that opened what leaks.
    #[arg(long, conflicts_with = "once")]
    pub trace: bool,
    /// Protection.
    #[command(flatten)]
    pub protect: ProtectArgs,
    /// The program and its arguments.
    #[arg(last = true, value_name = "CMD", required_unless_present = "config")]
    pub command: Vec<OsString>,
}

/// When it is started again, and how it is ended.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Restart and stop")]
pub struct RestartArgs {
    /// After which ends it is started again [default: on-failure].
    #[arg(long, value_name = "WHEN", value_parser = ["always", "on-failure", "never"])]
    pub restart: Option<String>,
    /// Stay down after these exit codes; may be repeated.
    #[arg(long, value_name = "CODES", value_delimiter = ',')]
    pub stop_on: Vec<String>,
    /// The first restart is at once; then starts are this far apart, doubling [default: 100ms..30s].
    #[arg(long, value_name = "FROM..TO")]
    pub backoff: Option<String>,
    /// A shorter run is a quick end [default: 1s].
    #[arg(long, value_name = "TIME")]
    pub min_uptime: Option<String>,
    /// A run of this length forgets the ends before it [default: 10s].
    #[arg(long, value_name = "TIME")]
    pub reset_after: Option<String>,
    /// Give up after more quick ends than this, or `off` [default: 5/60s].
    #[arg(long, value_name = "N/TIME")]
    pub crash_loop: Option<String>,
    /// The signal that asks it to end [default: TERM].
    #[arg(long, value_name = "SIGNAL")]
    pub stop_signal: Option<String>,
    /// From the first signal to the end by KILL [default: 10s].
    #[arg(long, value_name = "TIME")]
    pub stop_grace: Option<String>,
    /// The program ended with 0, and a child of it holds a listening socket: keep that child as the
    /// service, end it, or fail [default: adopt].
    #[arg(long, value_name = "WHAT", value_parser = ["adopt", "end", "fail"])]
    pub background: Option<String>,
}

/// What it is given.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sockets")]
pub struct SocketArgs {
    /// Bind this socket once and hand it over at every start, as LISTEN_FDS: `tcp:PORT`,
    /// `tcp:HOST:PORT`, `unix:PATH`; may be repeated.
    #[arg(long, value_name = "SOCKET")]
    pub listen: Vec<String>,
    /// When a socket is taken: `refuse` (exit 2 and say by whom), `wait:30s`, or `end-if-ours` (what
    /// an earlier run of this service left) [default: refuse].
    #[arg(long, value_name = "WHAT")]
    pub on_conflict: Option<String>,
}

/// How one knows that it works.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Health")]
pub struct HealthArgs {
    /// When it is ready: `tcp:PORT`, `http:URL`, `exec:CMD`, `notify`, `fd:N`, `line:REGEX`, `up:5s`;
    /// at once when absent.
    #[arg(long, value_name = "CHECK")]
    pub ready: Option<String>,
    /// How long it may take to be ready [default: 120s].
    #[arg(long, value_name = "TIME")]
    pub ready_timeout: Option<String>,
    /// Restart it when this fails: a check as for --ready, or `accept`; `period=5s failure=3` may
    /// follow; may be repeated.
    #[arg(long, value_name = "CHECK")]
    pub health: Vec<String>,
    /// Restart it when it sends no WATCHDOG=1 for this long, or `off` [default: off].
    #[arg(long, value_name = "TIME")]
    pub watchdog: Option<String>,
    /// Whose notifications count [default: main].
    #[arg(long, value_name = "WHO", value_parser = ["none", "main", "exec", "all"])]
    pub notify_access: Option<String>,
}

/// What it may use.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Budgets")]
pub struct BudgetArgs {
    /// Warn at one level and restart at the other: `fds=80%:90%`, `highest=900`, `class:tcp=200`,
    /// `growth=30/min`, `wall=30m`, `zombies=50`, `memory=1GiB`, `children=64`; may be repeated.
    #[arg(long, value_name = "NAME=WARN:ACT")]
    pub budget: Vec<String>,
    /// A breach this soon after a start is not helped by a restart: it is only told [default: 10s].
    #[arg(long, value_name = "TIME")]
    pub warmup: Option<String>,
    /// Before a restart that a budget asks for, let it finish: a signal (`HUP`), `http:URL`,
    /// `exec:CMD` or `none` [default: none].
    #[arg(long, value_name = "HOW")]
    pub drain: Option<String>,
    /// How long it may take to drain, 300s at most [default: 30s].
    #[arg(long, value_name = "TIME")]
    pub drain_timeout: Option<String>,
    /// How long the new process may take to answer [default: 120s].
    #[arg(long, value_name = "TIME")]
    pub prove_timeout: Option<String>,
    /// A budget that is breached again at once: keep the service running and say so, or stop it
    /// [default: keep].
    #[arg(long, value_name = "WHAT", value_parser = ["keep", "stop"])]
    pub when_again: Option<String>,
    /// Raise its soft limit of descriptors to this where it is lower: a number, `max`, `on` (4096) or
    /// `off` [default: on].
    #[arg(long, value_name = "N")]
    pub raise_limit: Option<String>,
    /// Write the evidence of each breach (what `fdguard doctor` writes) into this folder, or `off`
    /// [default: $XDG_STATE_HOME/fdguard/evidence].
    #[arg(long, value_name = "DIR")]
    pub evidence: Option<String>,
}

/// Where it is told.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct RunOutputArgs {
    /// The form of event lines on stderr [default: text].
    #[arg(long, value_name = "FORM", value_parser = ["text", "json"])]
    pub log_format: Option<String>,
    /// Keep its output in this file, rotated; `size=10MiB keep=5 pass=lines` may follow.
    #[arg(long, value_name = "FILE")]
    pub log: Option<String>,
    /// Prometheus metrics and /health at this address: `127.0.0.1:9464`.
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<String>,
    /// Callers with this token see names, too: `file:PATH` or `env:NAME`.
    #[arg(long, value_name = "WHERE")]
    pub metrics_token: Option<String>,
}

impl RunArgs {
    /// What was said on the command line, by the key of the file that means the same.
    #[must_use]
    pub fn said(&self) -> Vec<(&'static str, Vec<String>)> {
        let one = |text: &Option<String>| text.iter().cloned().collect();
        let all: Vec<(&'static str, Vec<String>)> = vec![
            ("folder", one(&self.folder)),
            ("env", self.env.clone()),
            ("restart", one(&self.restart.restart)),
            ("stop_on", self.restart.stop_on.clone()),
            ("backoff", one(&self.restart.backoff)),
            ("min_uptime", one(&self.restart.min_uptime)),
            ("reset_after", one(&self.restart.reset_after)),
            ("crash_loop", one(&self.restart.crash_loop)),
            ("stop_signal", one(&self.restart.stop_signal)),
            ("stop_grace", one(&self.restart.stop_grace)),
            ("background", one(&self.restart.background)),
            ("listen", self.sockets.listen.clone()),
            ("on_conflict", one(&self.sockets.on_conflict)),
            ("ready", one(&self.health.ready)),
            ("ready_timeout", one(&self.health.ready_timeout)),
            ("health", self.health.health.clone()),
            ("watchdog", one(&self.health.watchdog)),
            ("notify_access", one(&self.health.notify_access)),
            ("budget", self.budgets.budget.clone()),
            ("warmup", one(&self.budgets.warmup)),
            ("drain", one(&self.budgets.drain)),
            ("drain_timeout", one(&self.budgets.drain_timeout)),
            ("prove_timeout", one(&self.budgets.prove_timeout)),
            ("when_again", one(&self.budgets.when_again)),
            ("raise_limit", one(&self.budgets.raise_limit)),
            ("evidence", one(&self.budgets.evidence)),
            ("log_format", one(&self.output.log_format)),
            ("log", one(&self.output.log)),
            ("metrics", one(&self.output.metrics)),
            ("metrics_token", one(&self.output.metrics_token)),
        ];
        all.into_iter()
            .filter(|(_, texts)| !texts.is_empty())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};
    use fdguard_supervise::config;

    use crate::cli::{Cli, Command};

    #[test]
    fn every_key_of_the_file_is_a_flag_that_says_the_same() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for key in config::flags() {
            let flag = key.replace('_', "-");
            let found = run
                .get_arguments()
                .find(|one| one.get_long() == Some(&flag));
            let found = found.unwrap_or_else(|| panic!("--{flag} is missing"));
            let value = found.get_possible_values();
            let value = value.first().map_or("1", |value| value.get_name());
            let words = ["fdguard", "run", &format!("--{flag}={value}"), "--", "true"];
            let parsed = Cli::try_parse_from(words).unwrap();
            let Command::Run(args) = parsed.command else {
                panic!()
            };
            assert_eq!(args.said(), [(key, vec![value.to_owned()])]);
        }
    }
}
