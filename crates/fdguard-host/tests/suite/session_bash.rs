//! Bash: exact ends, state, and text of any shape.

use fdguard_host::receipt::SessionEndReason;
use fdguard_host::session::{ExecOutcome, SessionProgram};

use super::session_support::{descendants, descriptors, on_host_runtime, open, run, said};

#[test]
fn a_session_runs_commands_and_its_close_leaves_nothing() {
    on_host_runtime(async {
        let (first, hub) = open(SessionProgram::Bash).await;
        first.close(SessionEndReason::Asked).await;
        let before = descriptors();
        let session = fdguard_host::session::Session::start(
            "two",
            fdguard_host::session::SessionSpec::new(SessionProgram::Bash),
            &hub,
        )
        .await
        .unwrap();
        assert_eq!(descriptors().len(), before.len() + 2);
        assert_eq!(
            said(&session, "echo hello").await,
            (0, "hello\n".to_owned())
        );
        let receipt = session.close(SessionEndReason::Asked).await;
        assert!(receipt.clean, "{receipt:?}");
        assert_eq!((receipt.survivors, receipt.zombies), (Some(0), Some(0)));
        assert_eq!((receipt.descriptors_held, receipt.descriptors_left), (2, 0));
        assert_eq!(descriptors(), before);
        assert_eq!(descendants(), Vec::<u32>::new());
        assert_eq!(
            session.close(SessionEndReason::Idle).await,
            receipt,
            "the same again"
        );
    });
}

#[test]
fn statuses_are_exact() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        for (code, status) in [
            ("true", 0),
            ("false", 1),
            ("(exit 7)", 7),
            ("sh -c 'exit 255'", 255),
            ("sh -c 'kill -9 $$'", 137),
            ("no-such-command-here", 127),
            ("/etc/passwd", 126),
            ("true | false", 1),
            ("", 0),
            ("# nothing", 0),
        ] {
            assert_eq!(said(&session, code).await.0, status, "{code}");
        }
        assert_eq!(said(&session, "(exit 3)").await.0, 3);
        assert_eq!(
            said(&session, "echo $?").await.1,
            "3\n",
            "kept as in a shell"
        );
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn state_is_kept() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        let define = "cd /usr\nx='a b'\ndeclare -A map=([k]=v)\nf() { echo \"f $1 $x\"; }\nalias ll='echo alias'\nset -u";
        assert_eq!(said(&session, define).await, (0, String::new()));
        let done = run(&session, "f 1; ll; echo ${map[k]}; pwd").await;
        assert_eq!(done.stdout.text, "f 1 a b\nalias\nv\n/usr\n");
        assert_eq!(done.dir.as_deref(), Some("/usr"));
        let unset = run(&session, "echo $not_there; echo not here").await;
        assert_eq!(unset.outcome, ExecOutcome::Exited { status: 1 });
        assert!(unset.stdout.text.contains("unbound"), "{unset:?}");
        assert_eq!(
            said(&session, "set +u; echo $not_there").await,
            (0, "\n".to_owned())
        );
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn text_of_any_shape_is_one_command() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        let loop_text = "for i in 1 2\ndo\n  echo \"i=$i\"\ndone\ncat <<END\nhere 'it' is\nEND";
        let expected = "i=1\ni=2\nhere 'it' is\n";
        assert_eq!(said(&session, loop_text).await, (0, expected.to_owned()));
        for broken in [
            "echo \"open",
            "if true; then",
            "echo 'open\necho x",
            "((",
            "done",
            "cat <<E\nx",
        ] {
            let done = run(&session, broken).await;
            assert!(
                matches!(done.outcome, ExecOutcome::Exited { .. }),
                "{broken}: {done:?}"
            );
            assert_eq!(
                said(&session, "echo next").await,
                (0, "next\n".to_owned()),
                "after {broken}"
            );
        }
        let error = run(&session, "echo \"open").await;
        assert!(error.stdout.text.contains("line 1:"), "{error:?}");
        assert_eq!(said(&session, "echo 'äöü €'").await.1, "äöü €\n");
        assert_eq!(said(&session, "printf '%s' '\\n'").await.1, "\\n");
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn a_command_that_reads_gets_no_other_command() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        let command = "head -c 1 <&0 & wait -n -p x & read -t 0.05 line; echo \"[$line]\"; kill %1 2>/dev/null; true";
        assert_eq!(said(&session, command).await, (0, "[]\n".to_owned()));
        assert_eq!(said(&session, "echo next").await, (0, "next\n".to_owned()));
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn a_megabyte_of_text_is_one_command() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        for length in [4000, 4095, 4096, 4097, 5000, 70_000, 1 << 20] {
            let filler = "x".repeat(length - 20);
            let code = format!("y='{filler}'; echo ${{#y}}");
            assert_eq!(
                said(&session, &code).await,
                (0, format!("{}\n", length - 20))
            );
        }
        let left = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
        let ours = format!("fdguard-{}-", std::process::id());
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        assert!(
            !left
                .iter()
                .any(|name| name.to_string_lossy().starts_with(&ours)),
            "{left:?}"
        );
        session.close(SessionEndReason::Asked).await;
    });
}
