//! Timeouts, interrupts, resets, and late output of earlier commands.

use std::time::Duration;

use fdguard_host::Error;
use fdguard_host::receipt::SessionEndReason;
use fdguard_host::session::{Exec, ExecOutcome, SessionProgram};

use super::session_support::{
    descendants, lives, on_host_runtime, open, open_on_pipes, run, run_for, said, until,
};

const SOON: Duration = Duration::from_millis(100);

#[test]
fn an_interrupt_ends_what_runs_in_the_foreground_alone() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        assert_eq!(said(&session, "x=kept; sleep 300 & echo $!").await.0, 0);
        for code in [
            "echo partial; sleep 100",
            "echo partial; while :; do :; done\necho not here",
            "f() { while true; do sleep 1; done; }; echo partial; while true; do f; done\necho not here",
            "echo partial; cat",
            "echo partial; while true; do /bin/true; done; echo not here",
            "echo partial; read line; echo not here",
            "echo partial; sleep 100 | cat | cat",
            "echo partial; stty raw -isig; sleep 100",
            "echo partial; python3 -c 'import time; time.sleep(100)' 2>/dev/null",
        ] {
            let (live, mut chunks) = tokio::sync::mpsc::channel(64);
            let exec = session.exec(Exec::new(code), Some(live));
            let interrupt = async {
                chunks.recv().await.unwrap();
                assert!(session.interrupt().await.unwrap());
                while chunks.recv().await.is_some() {}
            };
            let (done, ()) = tokio::join!(exec, interrupt);
            let done = done.unwrap();
            assert_eq!(done.outcome, ExecOutcome::Interrupted, "{code}");
            assert!(!done.was_reset, "{code}");
            assert_eq!(done.stdout.text.trim_end(), "partial", "{code}");
            assert!(done.ms < 900.0, "{code}: {} ms", done.ms);
        }
        assert_eq!(said(&session, "echo $x; jobs | wc -l").await.1, "kept\n1\n");
        session.close(SessionEndReason::Asked).await;
        assert_eq!(descendants(), Vec::<u32>::new());
    });
}

#[test]
fn a_command_that_ignores_interrupts_is_ended_harder_and_the_shell_stays() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        let before = session.pid();
        let code = "x=kept; sh -c 'trap \"\" INT TERM; echo deaf; while :; do :; done'; echo \"status $?\"";
        let done = run_for(&session, code, SOON).await;
        assert_eq!(done.outcome, ExecOutcome::TimedOut);
        assert!(done.stdout.text.starts_with("deaf\n"), "{done:?}");
        assert!(!done.was_reset, "QUIT is enough");
        let code = "sh -c 'trap \"\" INT QUIT TERM; echo deaf; while :; do :; done'";
        let done = run_for(&session, code, SOON).await;
        assert_eq!(done.outcome, ExecOutcome::TimedOut);
        assert!(!done.was_reset, "KILL is enough");
        assert_eq!(said(&session, "echo $x").await.1, "kept\n");
        assert_eq!(session.pid(), before);
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn a_shell_that_is_deaf_itself_is_replaced() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        run(&session, "cd /usr").await;
        for code in [
            "trap '' INT; echo deaf; while :; do :; done",
            "echo deaf; exec sleep 100",
            "echo deaf; PS1=; exec bash --norc",
        ] {
            let before = session.pid();
            let done = run_for(&session, code, SOON).await;
            assert_eq!(
                done.outcome,
                if code.contains("sleep") {
                    ExecOutcome::ProgramEnded { status: Some(130) }
                } else {
                    ExecOutcome::TimedOut
                },
                "{done:?}"
            );
            assert!(done.stdout.text.starts_with("deaf\n"), "{done:?}");
            if code.contains("sleep") {
                session.reset().await.unwrap();
            } else {
                assert!(done.was_reset, "{done:?}");
            }
            assert_ne!(session.pid(), before);
            assert_eq!(said(&session, "pwd").await.1, "/usr\n");
        }
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn late_output_never_answers_the_next_command() {
    on_host_runtime(async {
        let (python, _hub) = open(SessionProgram::Python).await;
        let late = "import time, sys\ntry:\n    time.sleep(100)\nexcept KeyboardInterrupt:\n    print('LATE')";
        let done = run_for(&python, late, SOON).await;
        assert_eq!(
            (done.outcome, done.stdout.text.as_str()),
            (ExecOutcome::TimedOut, "LATE\n")
        );
        assert_eq!(
            said(&python, "print('NEXT')").await,
            (0, "NEXT\n".to_owned())
        );
        python.close(SessionEndReason::Asked).await;

        let (bash, _hub) = open(SessionProgram::Bash).await;
        let flag = tempfile::tempdir().unwrap();
        let flag = flag.path().join("said");
        let code = format!("(sleep 0.05; echo LATE; touch {}) &", flag.display());
        assert_eq!(said(&bash, &code).await, (0, String::new()));
        until("the flag", || flag.exists()).await;
        let done = run(&bash, "echo NEXT").await;
        assert_eq!(done.stdout.text, "NEXT\n");
        assert_eq!(done.earlier.unwrap().text, "LATE\n");
        assert_eq!(run(&bash, "echo AGAIN").await.earlier, None);
        bash.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn a_background_process_is_not_held_up_while_nothing_runs() {
    on_host_runtime(async {
        let (bash, _hub) = open(SessionProgram::Bash).await;
        let dir = tempfile::tempdir().unwrap();
        let flag = dir.path().join("done");
        let code = format!("(seq 200000; touch {}) &", flag.display());
        assert_eq!(said(&bash, &code).await.0, 0);
        until("the end of a megabyte", || flag.exists()).await;
        let earlier = run(&bash, "true").await.earlier.unwrap();
        assert!(earlier.text.ends_with("200000\n"));
        bash.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn one_command_at_a_time() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        let (live, mut chunks) = tokio::sync::mpsc::channel(16);
        let exec = session.exec(Exec::new("echo on; sleep 100"), Some(live));
        let other = async {
            chunks.recv().await.unwrap();
            assert!(session.busy_for().is_some());
            let error = session.exec(Exec::new("true"), None).await.unwrap_err();
            assert!(matches!(error, Error::Busy { .. }), "{error}");
            session.interrupt().await.unwrap();
        };
        let (done, ()) = tokio::join!(exec, other);
        assert_eq!(done.unwrap().outcome, ExecOutcome::Interrupted);
        assert_eq!(session.busy_for(), None);
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn a_client_that_goes_away_interrupts_its_command_and_leaves_the_session_usable() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        assert_eq!(said(&session, "x=kept").await.0, 0);
        for _ in 0..20 {
            let (live, mut chunks) = tokio::sync::mpsc::channel(16);
            let command = Exec::new("echo on; sleep 100; echo not here");
            tokio::select! {
                done = session.exec(command, Some(live)) => panic!("{done:?}"),
                _ = chunks.recv() => {}
            }
            let done = run(&session, "echo $x").await;
            assert_eq!(
                (done.stdout.text.as_str(), done.was_reset),
                ("kept\n", false)
            );
            assert!(done.ms < 900.0);
        }
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn a_reset_keeps_id_and_dir_and_ends_everything_else() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        let (_, text) = said(&session, "cd /usr; x=1; (setsid sleep 300 & echo $!)").await;
        let away: u32 = text.trim().parse().unwrap();
        assert!(lives(away));
        let exec = run_for(&session, "sleep 100", Duration::from_secs(60));
        let reset = async {
            until("a command", || session.members().len() > 2).await;
            session.reset().await.unwrap()
        };
        let (done, receipt) = tokio::join!(exec, reset);
        assert_eq!(
            (done.outcome, done.was_reset),
            (ExecOutcome::Interrupted, true)
        );
        assert_eq!(
            (receipt.reason, receipt.clean),
            (SessionEndReason::Reset, true)
        );
        assert!(!lives(away));
        assert_eq!(said(&session, "pwd; echo \"[$x]\"").await.1, "/usr\n[]\n");
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn pipes_are_interrupted_too() {
    on_host_runtime(async {
        for (program, code) in [
            (
                SessionProgram::Bash,
                "echo on; while true; do sleep 1; done; echo not here",
            ),
            (SessionProgram::Python, "print('on')\nwhile True: pass"),
            (
                SessionProgram::Python,
                "print('on')\nimport subprocess; subprocess.run(['sleep', '100'])",
            ),
        ] {
            let (session, _hub) = open_on_pipes(program).await;
            let (live, mut chunks) = tokio::sync::mpsc::channel(16);
            let exec = session.exec(Exec::new(code), Some(live));
            let other = async {
                chunks.recv().await.unwrap();
                session.interrupt().await.unwrap();
                while chunks.recv().await.is_some() {}
            };
            let (done, ()) = tokio::join!(exec, other);
            let done = done.unwrap();
            assert_eq!(
                (done.outcome, done.was_reset),
                (ExecOutcome::Interrupted, false),
                "{code}"
            );
            assert_eq!(done.stdout.text.trim_end(), "on", "{code}");
            session.close(SessionEndReason::Asked).await;
        }
    });
}
