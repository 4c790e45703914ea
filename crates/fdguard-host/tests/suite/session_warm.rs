//! Python sessions that are forked from the warm interpreter are sessions like any other.

use std::path::PathBuf;
use std::sync::Arc;

use fdguard_host::receipt::SessionEndReason;
use fdguard_host::session::{
    Channel, Exec, ExecOutcome, Hub, PYTHON_DRIVER, Session, SessionProgram, SessionSpec,
};
use fdguard_host::warm::{WarmPool, find};

use super::session_support::{descendants, descriptors, on_host_runtime, run, said, until};

async fn pool() -> Arc<WarmPool> {
    let python = find("python3", &std::env::var_os("PATH").unwrap()).unwrap();
    let exe = std::env::current_exe().unwrap();
    let keeper: PathBuf = exe
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples/session_keeper");
    assert!(keeper.is_file(), "{} is not built", keeper.display());
    Arc::new(
        WarmPool::start(&python, &keeper, PYTHON_DRIVER)
            .await
            .unwrap(),
    )
}

async fn is_interrupted(session: &Session) {
    let (live, mut chunks) = tokio::sync::mpsc::channel(16);
    let exec = session.exec(Exec::new("print('on')\nwhile True: pass"), Some(live));
    let interrupt = async {
        chunks.recv().await.unwrap();
        assert!(session.interrupt().await.unwrap());
        while chunks.recv().await.is_some() {}
    };
    let (done, ()) = tokio::join!(exec, interrupt);
    let done = done.unwrap();
    let how = (done.outcome, done.was_reset);
    assert_eq!(how, (ExecOutcome::Interrupted, false), "{done:?}");
}

#[test]
fn a_warm_session_is_like_a_cold_one() {
    on_host_runtime(async {
        let hub = Hub::open().unwrap();
        let pool = pool().await;
        let before = descriptors();
        for channel in [
            Channel::Pty {
                columns: 80,
                rows: 24,
            },
            Channel::Pipes,
        ] {
            let mut spec = SessionSpec::new(SessionProgram::Python);
            spec.dir = Some("/usr".into());
            spec.environment
                .push(("OF_THE_SESSION".to_owned(), "yes".to_owned()));
            spec.channel = channel;
            let session = Session::start_warm("warm", spec, &hub, Some(Arc::clone(&pool)))
                .await
                .unwrap();
            assert_eq!(pool.trouble(), None);
            let code = "import os, sys\nx = 1\nos.getcwd(), os.environ['OF_THE_SESSION'], os.isatty(1), __name__";
            let is_terminal = if channel == Channel::Pipes {
                "False"
            } else {
                "True"
            };
            let expected = format!("('/usr', 'yes', {is_terminal}, '__main__')\n");
            assert_eq!(said(&session, code).await, (0, expected));
            let error = run(&session, "x\n1/0").await;
            assert_eq!(error.outcome, ExecOutcome::Exited { status: 1 });
            let text = error.stderr.map_or(error.stdout.text, |stderr| stderr.text);
            assert!(text.contains("line 2, in <module>\n    1/0\n"), "{text}");
            assert!(
                !text.contains("zygote") && !text.contains("drive"),
                "{text}"
            );

            is_interrupted(&session).await;
            session.reset().await.unwrap();
            assert_eq!(
                said(&session, "import os; 'x' in globals(), os.getcwd()")
                    .await
                    .1,
                "(False, '/usr')\n"
            );
            let done = run(&session, "import subprocess; subprocess.Popen(['setsid', 'sleep', '300']); raise SystemExit(4)").await;
            assert_eq!(done.outcome, ExecOutcome::ProgramEnded { status: Some(4) });
            let receipt = session.close(SessionEndReason::Asked).await;
            assert!(receipt.clean, "{receipt:?}");
            assert_eq!(receipt.exit.as_deref(), Some("exit 4"));
            assert_eq!(descriptors(), before);
            // The interpreter and its keeper, and the two that were forked ahead; this session's
            // keeper is reaped a moment later.
            until("the end of the session's keeper", || {
                descendants().len() == 4
            })
            .await;
        }
        pool.close().await;
    });
}

/// Files that are still open are in variables and in a module's variables; a callback and a
/// finalizer write too.
const UNFINISHED: &str = r#"
import atexit, os, sys
one = open('variable', 'w'); _ = one.write('kept')
open('own.py', 'w').write("held = open('module', 'w')\nheld.write('kept')\n")
sys.path.insert(0, '')
import own
class Final:
    def __del__(self, os=os):
        os.write(os.open('final', os.O_CREAT | os.O_WRONLY), b'kept')
final = Final()
def at_exit():
    with open('callback', 'w') as file: file.write('kept')
_ = atexit.register(at_exit)
"#;

#[test]
fn a_warm_session_writes_at_its_end_what_a_cold_one_does() {
    on_host_runtime(async {
        let hub = Hub::open().unwrap();
        let pool = pool().await;
        for source in [None, Some(Arc::clone(&pool))] {
            let is_warm = source.is_some();
            let dir = tempfile::tempdir().unwrap();
            let mut spec = SessionSpec::new(SessionProgram::Python);
            spec.dir = Some(dir.path().to_owned());
            let session = Session::start_warm("end", spec, &hub, source)
                .await
                .unwrap();
            let done = run(&session, UNFINISHED).await;
            assert_eq!(done.outcome, ExecOutcome::Exited { status: 0 }, "{done:?}");
            let receipt = session.close(SessionEndReason::Asked).await;
            assert!(receipt.clean, "{receipt:?}");
            assert_eq!(receipt.exit.as_deref(), Some("exit 129"), "{receipt:?}");
            for name in ["variable", "module", "final", "callback"] {
                let text = std::fs::read_to_string(dir.path().join(name));
                let text = text.unwrap_or_default();
                assert_eq!(text, "kept", "{name}, warm: {is_warm}");
            }
        }
        pool.close().await;
    });
}
