//! Python: one namespace, values as a REPL shows them, and errors that are the command's own.

use std::time::Duration;

use fdguard_host::Error;
use fdguard_host::receipt::SessionEndReason;
use fdguard_host::session::{Exec, ExecOutcome, Hub, Session, SessionProgram, SessionSpec};

use super::session_support::{descendants, on_host_runtime, open, run, run_for, said, start};

#[test]
fn values_state_and_errors_are_as_in_a_repl() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Python).await;
        assert_eq!(
            said(&session, "x = 20\ndef f(a):\n    return a + 1\n").await,
            (0, String::new())
        );
        assert_eq!(
            said(&session, "print('hi')\nf(x)").await,
            (0, "hi\n21\n".to_owned())
        );
        assert_eq!(said(&session, "_").await.1, "21\n");
        assert_eq!(said(&session, "'ä€'").await.1, "'ä€'\n");
        assert_eq!(said(&session, "None").await.1, "");
        let error = said(&session, "a = 1\nb = 2\n1/0\n").await;
        assert_eq!(error.0, 1);
        let expected = "Traceback (most recent call last):\n  File \"<command-6>\", line 3, in <module>\n    1/0\n";
        assert!(error.1.starts_with(expected), "{}", error.1);
        assert!(
            error.1.ends_with("ZeroDivisionError: division by zero\n"),
            "{}",
            error.1
        );
        let syntax = said(&session, "print('open").await;
        assert_eq!(syntax.0, 1);
        assert!(syntax.1.contains("SyntaxError"), "{}", syntax.1);
        assert_eq!(said(&session, "b").await, (0, "2\n".to_owned()));
        assert_eq!(
            said(&session, "import __main__; __main__.x, __name__")
                .await
                .1,
            "(20, '__main__')\n"
        );
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn an_exit_ends_the_program_with_its_status() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Python).await;
        let code =
            "import sys, atexit\natexit.register(print, 'at exit')\nprint('bye'); sys.exit(9)";
        let done = run(&session, code).await;
        assert_eq!(done.outcome, ExecOutcome::ProgramEnded { status: Some(9) });
        assert_eq!(done.stdout.text, "bye\nat exit\n");
        session.ended().await;
        assert_eq!(session.pid(), None);
        let next = session.exec(Exec::new("1"), None).await;
        let said = next.unwrap_err().to_string();
        assert_eq!(said, "session test has ended: the program ended: exit 9");
        let receipt = session.close(SessionEndReason::ProgramEnded).await;
        assert!(receipt.clean, "{receipt:?}");
        assert_eq!(receipt.exit.as_deref(), Some("exit 9"));
    });
}

#[test]
fn an_interrupt_ends_the_command_and_keeps_what_it_said() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Python).await;
        for code in [
            "print('partial')\nwhile True: pass",
            "print('partial')\nimport time; time.sleep(100)",
            "print('partial')\nimport subprocess; subprocess.run(['sleep', '100'])",
            "print('partial')\ninput()",
        ] {
            let (live, mut chunks) = tokio::sync::mpsc::channel(16);
            let exec = session.exec(Exec::new(code), Some(live));
            let interrupt = async {
                chunks.recv().await.unwrap();
                assert!(session.interrupt().await.unwrap());
                chunks
            };
            let (done, chunks) = tokio::join!(exec, interrupt);
            drop(chunks);
            let done = done.unwrap();
            assert_eq!(done.outcome, ExecOutcome::Interrupted, "{code}");
            assert!(!done.was_reset, "{code}");
            assert!(done.stdout.text.starts_with("partial"), "{done:?}");
            assert!(
                done.stdout.text.ends_with("KeyboardInterrupt\n"),
                "{done:?}"
            );
            assert!(done.ms < 900.0, "{code}: {} ms", done.ms);
            assert_eq!(
                said(&session, "print('next')").await,
                (0, "next\n".to_owned())
            );
        }
        assert!(!session.interrupt().await.unwrap(), "nothing runs");
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn what_ignores_interrupts_is_replaced_and_the_dir_stays() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Python).await;
        assert_eq!(
            run(&session, "import os; os.chdir('/usr')")
                .await
                .dir
                .as_deref(),
            Some("/usr")
        );
        let before = session.pid();
        let stubborn = "import signal, os\nfor s in (signal.SIGINT, signal.SIGQUIT): signal.signal(s, signal.SIG_IGN)\nprint('deaf')\nwhile True: pass";
        let done = run_for(&session, stubborn, Duration::from_millis(50)).await;
        assert_eq!(done.outcome, ExecOutcome::TimedOut);
        assert!(done.was_reset);
        assert_eq!(done.stdout.text, "deaf\n");
        assert_ne!(session.pid(), before);
        assert_eq!(said(&session, "import os; os.getcwd()").await.1, "'/usr'\n");
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn a_forked_child_does_not_become_a_second_session() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Python).await;
        let code = "import os\npid = os.fork()\nprint('child' if pid == 0 else 'parent')\nif pid: os.waitpid(pid, 0)";
        let (status, text) = said(&session, code).await;
        assert_eq!(status, 0);
        assert!(
            text.contains("child") && text.contains("parent"),
            "{text:?}"
        );
        assert_eq!(session.members().len(), 1);
        assert_eq!(said(&session, "1 + 1").await.1, "2\n");
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn a_command_that_closes_descriptors_is_survived_or_ends_the_session_clearly() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Python).await;
        assert_eq!(
            said(
                &session,
                "import os, sys\ntry: os.close(3)\nexcept OSError as e: print('none')"
            )
            .await
            .1,
            "none\n"
        );
        assert_eq!(
            run(&session, "sys.stdout.close()").await.outcome,
            ExecOutcome::Exited { status: 0 }
        );
        assert_eq!(
            said(
                &session,
                "sys.stdout = open('/dev/tty', 'w'); print('back')"
            )
            .await
            .1,
            "back\n"
        );
        let done = run(&session, "os.closerange(3, 1 << 16)").await;
        assert_eq!(done.outcome, ExecOutcome::ProgramEnded { status: Some(1) });
        assert!(
            done.stdout.text.contains("the session channel was closed"),
            "{done:?}"
        );
        let error = session.exec(Exec::new("1"), None).await.unwrap_err();
        assert!(matches!(error, Error::Ended { .. }), "{error}");
        assert!(session.close(SessionEndReason::ProgramEnded).await.clean);
        assert_eq!(descendants(), Vec::<u32>::new());
    });
}

#[test]
fn a_long_command_and_threads_work() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Python).await;
        let filler = "y".repeat(1 << 20);
        assert_eq!(
            said(&session, &format!("t = '{filler}'; len(t)")).await.1,
            "1048576\n"
        );
        let start = "import threading\ngo = threading.Event(); done = []\nthread = threading.Thread(target=lambda: (go.wait(), done.append(1)), daemon=True)\nthread.start()";
        assert_eq!(said(&session, start).await, (0, String::new()));
        assert_eq!(
            said(&session, "go.set(); thread.join(); done").await.1,
            "[1]\n"
        );
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn few_descriptors_are_enough_and_too_few_are_refused_in_words() {
    on_host_runtime(async {
        for program in [SessionProgram::Python, SessionProgram::Bash] {
            for most in [24, 40, 64, 65] {
                let mut spec = SessionSpec::new(program.clone());
                spec.limits.descriptors = Some(most);
                let (session, _hub) = start(spec).await;
                let code = match program {
                    SessionProgram::Python => "import os; print(os.sysconf('SC_OPEN_MAX'))",
                    _ => "ulimit -n",
                };
                let (status, text) = said(&session, code).await;
                assert_eq!((status, text.trim()), (0, &*most.to_string()));
                session.close(SessionEndReason::Asked).await;
            }
            let mut spec = SessionSpec::new(program);
            spec.limits.descriptors = Some(23);
            let hub = Hub::open().unwrap();
            let refused = Session::start("test", spec, &hub).await.unwrap_err();
            let text = refused.to_string();
            assert!(text.contains("limits.descriptors is 23"), "{text}");
        }
    });
}
