//! From start to close: every path leaves the host as it was.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use fdguard_host::Error;
use fdguard_host::receipt::SessionEndReason;
use fdguard_host::session::{
    Channel, Exec, ExecOutcome, Hub, Repl, Session, SessionProgram, SessionSpec,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::session_support::{
    descendants, descriptors, lives, on_host_runtime, open, open_on_pipes, run, said, start,
    threads, until,
};

fn set_soft_limit(soft: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: Some(soft),
        maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
}

fn repl(command: &[&str], template: &str) -> SessionProgram {
    SessionProgram::Repl(Repl {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        template: template.to_owned(),
    })
}

#[test]
fn two_hundred_sessions_leave_descriptors_processes_and_threads_as_they_were() {
    on_host_runtime(async {
        let threads_before = threads();
        let (first, hub) = open(SessionProgram::Bash).await;
        first.close(SessionEndReason::Asked).await;
        let before = descriptors();
        for number in 0..200 {
            let mut spec = SessionSpec::new(SessionProgram::Bash);
            if number % 3 == 0 {
                spec.channel = Channel::Pipes;
            }
            let session = Session::start("cycle", spec, &hub).await.unwrap();
            match number % 4 {
                0 => assert_eq!(said(&session, "echo x").await.1, "x\n"),
                1 => drop(run(&session, "sleep 300 & setsid sleep 300 &").await),
                2 => drop(run(&session, "exit 3").await),
                _ => {}
            }
            let receipt = session.close(SessionEndReason::Asked).await;
            assert!(receipt.clean, "{receipt:?}");
        }
        assert_eq!(descendants(), Vec::<u32>::new());
        assert_eq!(descriptors(), before);
        until("the end of idle threads", || threads() == threads_before).await;
    });
}

#[test]
fn r47_what_forked_away_is_gone_after_the_close() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        let code = "setsid sh -c 'trap \"\" HUP TERM; echo $$; exec sleep 300' & (setsid nohup sleep 301 >/dev/null 2>&1 & echo $!); sleep 0.05";
        let (_, text) = said(&session, code).await;
        let away: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        assert_eq!(away.len(), 2, "{text:?}");
        assert!(away.iter().all(|pid| lives(*pid)));
        let receipt = session.close(SessionEndReason::Asked).await;
        assert!(receipt.clean, "{receipt:?}");
        assert!(receipt.killed.unwrap() >= 1, "{receipt:?}");
        assert!(receipt.total_ms < 2000.0, "{receipt:?}");
        assert!(!away.iter().any(|pid| lives(*pid)));
    });
}

#[test]
fn a_session_that_is_dropped_is_closed() {
    on_host_runtime(async {
        let (first, hub) = open(SessionProgram::Bash).await;
        first.close(SessionEndReason::Asked).await;
        let before = descriptors();
        let session = Session::start("dropped", SessionSpec::new(SessionProgram::Bash), &hub)
            .await
            .unwrap();
        assert_eq!(said(&session, "setsid sleep 300 &").await.0, 0);
        drop(session);
        until("the end of all processes", || descendants().is_empty()).await;
        until("the end of all descriptors", || descriptors() == before).await;
    });
}

#[test]
fn a_close_ends_a_command_that_runs() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        let exec = session.exec(Exec::new("sleep 100"), None);
        let close = async {
            until("a command", || session.members().len() > 1).await;
            session.close(SessionEndReason::Shutdown).await
        };
        let (done, receipt) = tokio::join!(exec, close);
        assert_eq!(done.unwrap().outcome, ExecOutcome::Interrupted);
        assert_eq!(
            (receipt.reason, receipt.clean),
            (SessionEndReason::Shutdown, true)
        );
        let error = session.exec(Exec::new("true"), None).await.unwrap_err();
        assert_eq!(error.to_string(), "session test has ended: it was closed");
        assert_eq!(session.members(), Vec::<u32>::new());
    });
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    on_host_runtime(async {
        let (first, hub) = open(SessionProgram::Bash).await;
        first.close(SessionEndReason::Asked).await;
        let before = descriptors();
        let mut missing = SessionSpec::new(repl(&["no-such-program"], "{file}{fd}{nonce}"));
        missing.ready_within = Duration::from_millis(200);
        let mut silent = missing.clone();
        silent.program = repl(
            &["sh", "-c", "echo not yet; sleep 100"],
            "{file}{fd}{nonce}",
        );
        let mut ending = missing.clone();
        ending.program = repl(&["sh", "-c", "echo broken; exit 3"], "{file}{fd}{nonce}");
        let mut nowhere = SessionSpec::new(SessionProgram::Bash);
        nowhere.dir = Some("/no/such/folder".into());
        let mut bad = SessionSpec::new(SessionProgram::Bash);
        bad.environment.push(("A=B".to_owned(), String::new()));
        for (spec, code, words) in [
            (
                missing,
                "start-failed",
                "no-such-program: command not found",
            ),
            (silent, "not-ready", "not yet"),
            (
                ending,
                "ended",
                "exit 3 before it was ready; its output: \"broken",
            ),
            (nowhere, "start-failed", "No such file or directory"),
            (bad, "bad-request", "invalid environment variable \"A=B\""),
        ] {
            let error = Session::start("failing", spec, &hub).await.unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(descriptors(), before, "{error}");
            assert_eq!(descendants(), Vec::<u32>::new(), "{error}");
        }
    });
}

#[test]
fn a_full_table_at_any_step_of_a_start_leaves_nothing() {
    on_host_runtime(async {
        let (first, hub) = open(SessionProgram::Bash).await;
        first.close(SessionEndReason::Asked).await;
        let before = descriptors();
        let mut failed = 0;
        let mut filler: Vec<File> = Vec::new();
        let room = 40;
        set_soft_limit((before.last().unwrap() + 1 + room).into());
        // From a full table on, one more free number each time: every step of the start meets it
        // once.
        while let Ok(file) = File::open("/dev/null") {
            filler.push(file);
        }
        // The look itself needs a descriptor.
        let look = |filler: &mut Vec<File>| {
            drop(filler.pop());
            let seen = descriptors();
            filler.push(File::open("/dev/null").unwrap());
            seen
        };
        let opened = loop {
            let held = look(&mut filler);
            match Session::start("full", SessionSpec::new(SessionProgram::Bash), &hub).await {
                Ok(session) => break session,
                Err(error) => {
                    assert!(
                        matches!(error, Error::Io { .. } | Error::Start(_)),
                        "{error}"
                    );
                    failed += 1;
                }
            }
            assert_eq!(look(&mut filler), held, "after {failed}");
            assert!(filler.pop().is_some(), "never enough");
            assert_eq!(descendants(), Vec::<u32>::new(), "after {failed}");
        };
        assert!(failed >= 4, "{failed}");
        assert_eq!(said(&opened, "echo x").await.1, "x\n");
        assert!(opened.close(SessionEndReason::Asked).await.clean);
        drop(filler);
        assert_eq!(descriptors(), before);
    });
}

#[test]
fn numbers_above_1023_and_a_table_that_is_nearly_full_work() {
    on_host_runtime(async {
        set_soft_limit(
            getrlimit(Resource::Nofile)
                .maximum
                .unwrap_or(4096)
                .min(4096),
        );
        let limit = getrlimit(Resource::Nofile).current.unwrap();
        let filler: Vec<File> = (0..limit * 95 / 100)
            .map(|_| File::open("/dev/null").unwrap())
            .collect();
        let (bash, _hub) = open(SessionProgram::Bash).await;
        let (python, _hub) = open_on_pipes(SessionProgram::Python).await;
        assert!(descriptors().last().is_some_and(|last| *last > 1023));
        assert_eq!(
            said(&bash, "echo x; ls /proc/self/fd | wc -l").await.1,
            "x\n4\n"
        );
        assert_eq!(said(&python, "1 + 1").await.1, "2\n");
        let done =
            super::session_support::run_for(&bash, "sleep 100", Duration::from_millis(50)).await;
        assert_eq!(
            (done.outcome, done.was_reset),
            (ExecOutcome::TimedOut, false)
        );
        assert!(bash.close(SessionEndReason::Asked).await.clean);
        assert!(python.close(SessionEndReason::Asked).await.clean);
        drop(filler);
    });
}

#[test]
fn any_interpreter_works_by_configuration() {
    on_host_runtime(async {
        let template = ". {file}; echo \"{nonce} $? $PWD\" >&{fd}";
        for channel in [
            Channel::Pipes,
            Channel::Pty {
                columns: 80,
                rows: 24,
            },
        ] {
            let mut spec = SessionSpec::new(repl(&["sh"], template));
            spec.environment.push(("PS1".to_owned(), String::new()));
            spec.channel = channel;
            let (session, _hub) = start(spec).await;
            assert_eq!(
                said(&session, "x=1; cd /usr\nfalse").await,
                (1, String::new()),
                "{channel:?}"
            );
            let done = run(&session, "echo $x").await;
            assert_eq!(
                (done.stdout.text.as_str(), done.dir.as_deref()),
                ("1\n", Some("/usr"))
            );
            if matches!(channel, Channel::Pty { .. }) {
                let done = super::session_support::run_for(
                    &session,
                    "sleep 100",
                    Duration::from_millis(50),
                )
                .await;
                assert_eq!(
                    (done.outcome, done.was_reset),
                    (ExecOutcome::TimedOut, false)
                );
                assert_eq!(said(&session, "echo $x").await.1.trim(), "1");
            }
            assert!(session.close(SessionEndReason::Asked).await.clean);
        }
        let mut spec = SessionSpec::new(repl(
            &[
                "python3",
                "-q",
                "-i",
                "-c",
                "import sys, os; sys.ps1 = sys.ps2 = ''",
            ],
            "exec(open('{file}').read()); _ = os.write({fd}, b'{nonce} 0\\n')",
        ));
        spec.channel = Channel::Pipes;
        let (session, _hub) = start(spec).await;
        assert_eq!(said(&session, "y = 5\nprint(y)").await.1, "5\n");
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn a_program_that_is_killed_is_noticed_without_a_command() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        let pid = i32::try_from(session.pid().unwrap()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        session.ended().await;
        let error = session.exec(Exec::new("true"), None).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "session test has ended: the program ended: signal 9"
        );
        let receipt = session.reset().await.unwrap();
        assert_eq!(receipt.exit.as_deref(), Some("signal 9"));
        assert_eq!(said(&session, "echo again").await.1, "again\n");
        assert!(session.close(SessionEndReason::Asked).await.clean);
    });
}

#[test]
fn many_sessions_work_side_by_side() {
    on_host_runtime(async {
        let hub = Hub::open().unwrap();
        let before = descriptors().len();
        let open = |number: usize| {
            let hub = Arc::clone(&hub);
            tokio::spawn(async move {
                Session::start(
                    &format!("s{number}"),
                    SessionSpec::new(SessionProgram::Bash),
                    &hub,
                )
                .await
                .unwrap()
            })
        };
        let starting: Vec<_> = (0..30).map(open).collect();
        let mut sessions = Vec::new();
        for session in starting {
            sessions.push(Arc::new(session.await.unwrap()));
        }
        assert_eq!(descriptors().len(), before + 60);
        let mut tasks = Vec::new();
        for (number, session) in sessions.iter().cloned().enumerate() {
            tasks.push(tokio::spawn(async move {
                for round in 0..10 {
                    let code = format!("x={number}; echo $x {round}; (exit {})", number + round);
                    let expected = (
                        i32::try_from(number + round).unwrap(),
                        format!("{number} {round}\n"),
                    );
                    assert_eq!(said(&session, &code).await, expected);
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        for session in sessions {
            assert!(session.close(SessionEndReason::Asked).await.clean);
        }
        assert_eq!(descendants(), Vec::<u32>::new());
    });
}
