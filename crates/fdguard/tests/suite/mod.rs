//! Shared by the tests: runs the command and reads its output.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use testkit::{NOBODY, run_as};

mod archive;
mod attach_coverage;
mod attach_languages;
mod attaching;
mod canary;
mod ceilings;
mod check;
mod check_accepted;
mod check_action;
mod check_children;
mod check_exercise;
mod check_hazards;
mod check_reports;
mod check_scenario;
mod check_sqlite;
mod combinations;
mod completion;
mod contract;
mod deployment;
mod deployment_container;
mod diagnosis;
mod difference;
mod doctor;
mod doctor_bundle;
mod doctor_servers;
mod drill;
mod explain;
mod failure;
mod fleet;
mod help;
mod host;
mod host_canary;
mod host_churn;
mod host_code;
mod host_hostile;
mod host_killed;
mod host_mcp;
mod host_mcp_official;
mod host_pressure;
mod host_protocols;
mod host_secrecy;
mod host_start;
mod host_will;
mod hosted;
mod human;
mod input;
mod inspect;
mod inspect_watch;
mod json;
mod kernel_go;
mod kernel_languages;
mod kernel_refusals;
mod kernel_trace;
mod leakbench;
mod mcp_peer;
mod nobody;
mod old_userland;
mod orders;
mod phases;
mod podman;
mod profile;
mod progress;
mod real;
mod recordings;
mod run;
mod run_budget;
mod run_config;
mod run_end;
mod run_injected;
mod run_notify;
mod run_protect;
mod run_protect_python;
mod run_rows;
mod run_soak;
mod run_sockets;
mod running;
mod sanitizer;
mod select;
mod serve;
mod serve_alone;
mod serve_canary;
mod serve_judgement;
mod serve_options;
mod serve_series;
mod serve_state;
mod situation;
mod situation_answer;
mod situation_end;
mod situation_exit;
mod situation_language;
mod situation_paths;
mod situation_quiet;
mod situation_server;
mod situation_streams;
mod situation_workers;
mod surroundings;
mod terminal;
mod trace;
mod trace_attach;
mod trace_attach_node;
mod trace_attach_options;
mod trace_attach_user;
mod trace_children;
mod trace_end;
mod trace_follow;
mod trace_go;
mod trace_hazards;
mod trace_java;
mod trace_java_libraries;
mod trace_left;
mod trace_live;
mod trace_node;
mod trace_outputs;
mod trace_python;
mod trace_report;
mod trace_tasks;
mod trace_telling;
mod trace_unread;
mod trace_valgrind;
mod tracing;
mod unit;
mod via_lsof;
mod watch;
mod watch_blind;
mod watch_end;
mod watch_failure;
mod watch_record;
mod watching;
mod why;
mod why_force;
mod why_native;
mod why_node;
mod why_pause;
mod why_report;
mod why_text;
mod workloads;

/// The built command.
pub(crate) fn fdguard() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fdguard"));
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "FDX_LOG"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// The output of one run.
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl CommandOutput {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().expect("ended by itself"),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Standard output, which must be text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// Standard output as one JSON document on one line.
    pub(crate) fn json(&self) -> Value {
        let text = self.text();
        assert!(text.ends_with('\n') && text.lines().count() == 1, "{text}");
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The same, for a run that succeeded without other output.
    pub(crate) fn good_json(&self) -> Value {
        assert_eq!((self.code, &*self.stderr), (0, ""), "{}", self.text());
        self.json()
    }
}

/// Runs the command with these arguments.
pub(crate) fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> CommandOutput {
    CommandOutput::of(fdguard().args(args).output().unwrap())
}

/// `fdguard snap PID` with more arguments.
pub(crate) fn snap(pid: u32, args: &[&str]) -> CommandOutput {
    let mut command = fdguard();
    command.arg("snap").arg(pid.to_string()).args(args);
    CommandOutput::of(command.output().unwrap())
}

/// A copy of the command that user `nobody` can run: the build may be in a private directory.
pub(crate) struct AsNobody {
    program: PathBuf,
    _copy: TempDir,
}

impl AsNobody {
    pub(crate) fn new() -> Self {
        let copy = tempfile::tempdir().unwrap();
        fs::set_permissions(copy.path(), Permissions::from_mode(0o755)).unwrap();
        let program = copy.path().join("fdguard");
        // By `cp`: if this process had the file open for writing, exec would fail.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_fdguard"))
            .arg(&program)
            .status();
        assert!(copied.unwrap().success());
        Self {
            program,
            _copy: copy,
        }
    }

    /// The same with `/proc` hiding the processes of other users, in separate namespaces; `None` if
    /// they cannot be created.
    pub(crate) fn run_where_others_are_hidden(&self, args: &str) -> Option<CommandOutput> {
        let script = format!(
            "mount -t proc -o hidepid=2 proc /proc || exit 99
             exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups {} {args}",
            self.program.display()
        );
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "sh",
            "-c",
            &script,
        ]);
        let output = command
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .ok()?;
        (output.status.code() != Some(99)).then(|| CommandOutput::of(output))
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = run_as(NOBODY, Command::new(&self.program));
        command.args(args).current_dir("/").stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(args).output().unwrap())
    }
}
