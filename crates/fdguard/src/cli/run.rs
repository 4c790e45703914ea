//! Arguments of `fdguard run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::protect::ProtectArgs;

/// Supervise a service in the foreground, with descriptor budgets.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  fdguard run -- python3 server.py                 restart it if it fails or nears its limit
  fdguard run --listen tcp:8787 -- ./server        keep the socket open across restarts
  fdguard run --ready tcp:8787 --budget fds=80%:90% -- ./server
  fdguard run --config services.toml               several services, with dependencies
  fdguard run --explain --config services.toml     show each setting and its source
  fdguard run --once -- ./job                      no restart; kill what it leaves running
  fdguard run --exec -- ./server                   raise the limit, then exec the program
Signals: TERM and INT stop the service (a second INT at once), HUP reloads the file, QUIT logs the
state, USR1 reopens the logs. All other signals go to the program.
Exit codes: 0 stopped on request or finished; the program's own if it stays down, 128+n if signal n
killed it; 126 and 127 if it cannot be executed; 1 if it stays down without a failing status;
2 usage error, or the port is in use; 75 if a budget asks the parent for a restart
(--restart never); 78 error in the file.")]
pub struct RunArgs {
    /// Run the program once and return its status; do not restart it.
    #[arg(long)]
    pub once: bool,
    /// Raise the limit and exec the program in this process; do not supervise it.
    #[arg(long, conflicts_with_all = ["once", "config", "trace", "protect"])]
    pub exec: bool,
    /// Allow running under another `fdguard run`.
    #[arg(long)]
    pub nest: bool,
    /// Read services and dependencies from a file.
    ///
    /// Flags override the file for every service.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "once"])]
    pub config: Option<PathBuf>,
    /// Print every setting with its source, and exit.
    #[arg(long)]
    pub explain: bool,
    /// Name of the service; the program's name by default.
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub name: Option<String>,
    /// Working directory of the program.
    #[arg(id = "folder", long = "folder", value_name = "DIR")]
    pub dir: Option<String>,
    /// Set an environment variable; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub env: Vec<String>,
    /// Restart policy.
    #[command(flatten)]
    pub restart: RestartArgs,
    /// Sockets.
    #[command(flatten)]
    pub sockets: SocketArgs,
    /// Health checks.
    #[command(flatten)]
    pub health: HealthArgs,
    /// Budgets.
    #[command(flatten)]
    pub budgets: BudgetArgs,
    /// Output.
    #[command(flatten)]
    pub output: RunOutputArgs,
    /// Trace the program, so that a budget breach names the leaking line.
    #[arg(long, conflicts_with = "once", help_heading = "Budgets")]
    pub trace: bool,
    /// Protection.
    #[command(flatten)]
    pub protect: ProtectArgs,
    /// Program to run, with its arguments.
    #[arg(last = true, value_name = "CMD", required_unless_present = "config", help_heading = None::<&str>)]
    pub command: Vec<OsString>,
}

/// Restart policy and shutdown.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Restart and stop")]
pub struct RestartArgs {
    /// When to restart the program [default: on-failure].
    #[arg(long, value_name = "WHEN", value_parser = ["always", "on-failure", "never"])]
    pub restart: Option<String>,
    /// Do not restart after these exit codes; may be repeated.
    #[arg(long, value_name = "CODES", value_delimiter = ',')]
    pub stop_on: Vec<String>,
    /// Delay between restarts, doubling each time [default: 100ms..30s]. The first restart is
    /// immediate.
    #[arg(long, value_name = "FROM..TO")]
    pub backoff: Option<String>,
    /// Runs shorter than this count as crashes [default: 1s].
    #[arg(long, value_name = "TIME")]
    pub min_uptime: Option<String>,
    /// Reset the back-off after the service has run this long [default: 10s].
    #[arg(long, value_name = "TIME")]
    pub reset_after: Option<String>,
    /// Give up after more crashes than this in the given time, or `off` [default: 5/60s].
    #[arg(long, value_name = "N/TIME")]
    pub crash_loop: Option<String>,
    /// Stop signal [default: TERM].
    #[arg(long, value_name = "SIGNAL")]
    pub stop_signal: Option<String>,
    /// Time between the stop signal and SIGKILL [default: 10s].
    #[arg(long, value_name = "TIME")]
    pub stop_grace: Option<String>,
    /// What to do if the program exits with 0 and leaves a child with a listening socket: adopt the
    /// child as the service, end it, or fail [default: adopt].
    #[arg(long, value_name = "WHAT", value_parser = ["adopt", "end", "fail"])]
    pub background: Option<String>,
}

/// Sockets.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sockets")]
pub struct SocketArgs {
    /// Bind a socket once and pass it at every start.
    ///
    /// The program gets it as in systemd (LISTEN_FDS). Forms: `tcp:PORT`, `tcp:HOST:PORT`,
    /// `unix:PATH`; may be repeated.
    #[arg(long, value_name = "SOCKET")]
    pub listen: Vec<String>,
    /// What to do if a socket is in use: `refuse` (exit with 2 and name the holder), `wait:30s`, or
    /// `end-if-ours` (stop a process left by an earlier run of this service) [default: refuse].
    #[arg(long, value_name = "WHAT")]
    pub on_conflict: Option<String>,
}

/// Health checks.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Health")]
pub struct HealthArgs {
    /// Readiness check, such as `tcp:PORT` or `http:URL`.
    ///
    /// Forms: `tcp:PORT`, `http:URL`, `exec:CMD`, `notify`, `fd:N`, `line:REGEX`, `up:5s`. Without
    /// a check the service is ready at once.
    #[arg(long, value_name = "CHECK")]
    pub ready: Option<String>,
    /// Time limit for the service to become ready [default: 120s].
    #[arg(long, value_name = "TIME")]
    pub ready_timeout: Option<String>,
    /// Restart the service if this check fails: a check as for --ready, or `accept`, optionally
    /// followed by `period=5s failure=3`; may be repeated.
    #[arg(long, value_name = "CHECK")]
    pub health: Vec<String>,
    /// Restart the service if it sends no WATCHDOG=1 for this long, or `off` [default: off].
    #[arg(long, value_name = "TIME")]
    pub watchdog: Option<String>,
    /// Processes whose notifications are accepted [default: main].
    #[arg(long, value_name = "WHO", value_parser = ["none", "main", "exec", "all"])]
    pub notify_access: Option<String>,
}

/// Budgets.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Budgets")]
pub struct BudgetArgs {
    /// Warn and restart levels, as `fds=80%:90%`.
    ///
    /// fdguard warns at the first level and restarts the service at the second.
    ///
    /// Budgets: `fds=80%:90%`, `highest=900`, `class:tcp=200`, `growth=30/min`, `wall=30m` (time
    /// left to a limit), `zombies=50`, `memory=1GiB`, `children=64`; may be repeated.
    #[arg(long, value_name = "NAME=WARN:ACT")]
    pub budget: Vec<String>,
    /// Log a breach this soon after a start, but do not restart [default: 10s].
    #[arg(long, value_name = "TIME")]
    pub warmup: Option<String>,
    /// Drain the service before a budget restart: a signal (`HUP`), `http:URL`, `exec:CMD` or
    /// `none` [default: none].
    #[arg(long, value_name = "HOW")]
    pub drain: Option<String>,
    /// Time limit for draining, at most 300s [default: 30s].
    #[arg(long, value_name = "TIME")]
    pub drain_timeout: Option<String>,
    /// Time limit for the new process to respond [default: 120s].
    #[arg(long, value_name = "TIME")]
    pub prove_timeout: Option<String>,
    /// What to do if a budget is breached again right after a restart: keep the service running and
    /// log it, or stop the service [default: keep].
    #[arg(long, value_name = "WHAT", value_parser = ["keep", "stop"])]
    pub when_again: Option<String>,
    /// Raise the soft descriptor limit to at least this: a number, `max`, `on` (4096) or `off`
    /// [default: on].
    #[arg(long, value_name = "N")]
    pub raise_limit: Option<String>,
    /// Write a `fdguard doctor` bundle for each breach to this directory, or `off` [default:
    /// $XDG_STATE_HOME/fdguard/evidence].
    #[arg(long, value_name = "DIR")]
    pub evidence: Option<String>,
}

/// Output.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct RunOutputArgs {
    /// Format of the event log on stderr [default: text].
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    pub log_format: Option<String>,
    /// Write the program's output to this file, with rotation. Options may follow:
    /// `size=10MiB keep=5 pass=lines`.
    #[arg(long, value_name = "FILE")]
    pub log: Option<String>,
    /// Serve Prometheus metrics and /health on this address, such as `127.0.0.1:9464`.
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<String>,
    /// Token that lets callers also see names: `file:PATH` or `env:NAME`.
    #[arg(long, value_name = "SOURCE")]
    pub metrics_token: Option<String>,
}

impl RunArgs {
    /// Settings given on the command line, by the equivalent key of the file.
    #[must_use]
    pub fn said(&self) -> Vec<(&'static str, Vec<String>)> {
        let one = |text: &Option<String>| text.iter().cloned().collect();
        let all: Vec<(&'static str, Vec<String>)> = vec![
            ("folder", one(&self.dir)),
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
