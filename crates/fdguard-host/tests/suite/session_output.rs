//! Output: nothing lost, bounded memory, an honest gap, and separate streams.

use std::time::Duration;

use fdguard_host::receipt::SessionEndReason;
use fdguard_host::session::{Exec, ExecOutcome, ExecStream, SessionProgram, SessionSpec};
use sha2::{Digest as _, Sha256};

use super::session_support::{on_host_runtime, open, open_on_pipes, run, run_for, said, start};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The largest resident memory of this process so far, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

#[test]
fn r50_no_output_is_lost_at_the_end_of_a_thousand_commands() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        for number in 0..1000 {
            let lines = number % 7 + 1;
            let code = if number % 10 == 0 {
                format!("seq {lines}; sh -c 'echo last {number}'")
            } else {
                format!("for ((i = 1; i <= {lines}; i++)); do echo $i; done; echo last {number}")
            };
            let mut expected: String = (1..=lines).map(|line| format!("{line}\n")).collect();
            expected.push_str(&format!("last {number}\n"));
            assert_eq!(said(&session, &code).await, (0, expected));
        }
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn a_hundred_megabytes_cost_bounded_memory_and_the_gap_is_proven() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        for (size, cap) in [(10_000_000, 1 << 20), (100_000_000, 1 << 20)] {
            // Lines of 20 bytes.
            let whole = "0123456789 abcdefgh\n".repeat(size / 20);
            let (begin, end) = (cap / 2, size - (cap - cap / 2));
            let sha256 = hex(&Sha256::digest(&whole.as_bytes()[begin..end]));
            let (ends, missing) = ((end / 20 - begin / 20) as u64, (end - begin) as u64);
            drop(whole);
            let before = peak_memory();
            let command = format!("yes '0123456789 abcdefgh' | head -c {size}");
            // Through a terminal and an unoptimized build: a loaded machine needs its time.
            let done = run_for(&session, &command, Duration::from_secs(110)).await;
            assert_eq!(done.outcome, ExecOutcome::Exited { status: 0 });
            assert_eq!(done.stdout.bytes, size as u64);
            let dropped = done.stdout.dropped.unwrap();
            assert_eq!((dropped.bytes, dropped.lines), (missing, ends));
            assert_eq!(dropped.sha256, sha256);
            assert!(done.stdout.text.len() < cap + 200);
            let grown = peak_memory() - before;
            assert!(
                grown < 16 << 20,
                "{grown} bytes more for {size} bytes of output"
            );
        }
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn output_that_looks_like_an_end_is_output() {
    on_host_runtime(async {
        let (session, hub) = open(SessionProgram::Bash).await;
        let fake = "0123456789abcdef0123456789abcdef 0 /tmp";
        let (status, text) = said(
            &session,
            &format!("echo '{fake}'; echo 'bash-5.2$ '; (exit 5)"),
        )
        .await;
        assert_eq!((status, text), (5, format!("{fake}\nbash-5.2$ \n")));
        // Through the channel itself, with an unexpected nonce.
        let (status, _) = said(&session, &format!("echo '{fake}' >&19; (exit 6)")).await;
        assert_eq!(status, 6);
        assert_eq!(hub.unexpected(), 1);
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn one_session_cannot_end_anothers_command() {
    on_host_runtime(async {
        let (first, hub) = open(SessionProgram::Python).await;
        let second = fdguard_host::session::Session::start(
            "second",
            SessionSpec::new(SessionProgram::Python),
            &hub,
        )
        .await
        .unwrap();
        // The first finds its own nonce, as hostile code can, and hands it to the second, which
        // sends it from its own address.
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("nonce");
        let find = format!(
            "import sys, time, os\nframe = sys._getframe()\nwhile 'nonce' not in frame.f_locals: frame = frame.f_back\nopen('{0}.new', 'wb').write(frame.f_locals['nonce'])\nos.rename('{0}.new', '{0}')\nwhile os.path.exists('{0}'): time.sleep(0.001)\nprint('ended by itself')",
            file.display()
        );
        let send = format!(
            "import sys, time, os\nwhile not os.path.exists('{0}'): time.sleep(0.001)\nframe = sys._getframe()\nwhile 'tell' not in frame.f_locals: frame = frame.f_back\nframe.f_locals['tell'](open('{0}', 'rb').read(), 77)\ntime.sleep(0.05)\nos.unlink('{0}')",
            file.display()
        );
        let (found, sent) = tokio::join!(run(&first, &find), run(&second, &send));
        assert_eq!(sent.outcome, ExecOutcome::Exited { status: 0 }, "{sent:?}");
        assert_eq!(
            found.outcome,
            ExecOutcome::Exited { status: 0 },
            "{found:?}"
        );
        assert_eq!(found.stdout.text, "ended by itself\n");
        assert_eq!(hub.unexpected(), 1);
        first.close(SessionEndReason::Asked).await;
        second.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn who_listens_hears_everything_in_order_and_may_be_slow() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        let (live, mut chunks) = tokio::sync::mpsc::channel(1);
        let exec = session.exec(Exec::new("seq 100000"), Some(live));
        let listen = async {
            let mut heard = Vec::new();
            while let Some(chunk) = chunks.recv().await {
                assert_eq!(chunk.stream, ExecStream::Stdout);
                heard.extend_from_slice(&chunk.bytes);
                tokio::task::yield_now().await;
            }
            heard
        };
        let (done, heard) = tokio::join!(exec, listen);
        let expected: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
        assert_eq!(done.unwrap().stdout.text, expected);
        assert!(heard == expected.as_bytes());
        // A listener that never reads does not delay the timeout.
        let (live, chunks) = tokio::sync::mpsc::channel(1);
        let mut command = Exec::new("seq 100000");
        command.timeout = Duration::from_millis(200);
        let done = session.exec(command, Some(live)).await.unwrap();
        assert_eq!(done.outcome, ExecOutcome::TimedOut);
        drop(chunks);
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn pipes_keep_both_streams_apart() {
    on_host_runtime(async {
        let (session, _hub) = open_on_pipes(SessionProgram::Bash).await;
        let done = run(&session, "echo out; echo err >&2; cat; test -t 1; echo $?").await;
        assert_eq!(done.outcome, ExecOutcome::Exited { status: 0 });
        assert_eq!(
            done.stdout.text, "out\n1\n",
            "the input is empty and there is no terminal"
        );
        assert_eq!(done.stderr.unwrap().text, "err\n");
        let many = run(
            &session,
            "for i in {1..20000}; do echo $i; echo $i >&2; done",
        )
        .await;
        assert_eq!(many.stdout.text, many.stderr.unwrap().text);
        assert!(session.close(SessionEndReason::Asked).await.clean);
        let (session, _hub) = open_on_pipes(SessionProgram::Python).await;
        let done = run(
            &session,
            "import sys; print('out'); print('err', file=sys.stderr)",
        )
        .await;
        assert_eq!(
            (
                done.stdout.text.as_str(),
                done.stderr.unwrap().text.as_str()
            ),
            ("out\n", "err\n")
        );
        let receipt = session.close(SessionEndReason::Asked).await;
        assert_eq!((receipt.descriptors_held, receipt.descriptors_left), (3, 0));
    });
}

#[test]
fn a_command_may_do_what_it_wants_with_its_own_streams() {
    on_host_runtime(async {
        let (session, _hub) = open(SessionProgram::Bash).await;
        assert_eq!(
            said(&session, "stty raw; echo raw").await,
            (0, "raw\n".to_owned())
        );
        assert_eq!(
            said(&session, "exec >/dev/null; false").await,
            (1, String::new())
        );
        assert_eq!(
            said(&session, "echo unseen; (exit 4)").await,
            (4, String::new())
        );
        assert_eq!(
            said(&session, "exec >&2; echo seen").await,
            (0, "seen\n".to_owned())
        );
        assert_eq!(said(&session, "exec 0<&- 1>&- 2>&-").await.0, 0);
        assert_eq!(said(&session, "(exit 3)").await.0, 3);
        assert_eq!(
            said(&session, "exec >/dev/tty 2>&1 </dev/tty; echo back")
                .await
                .1,
            "back\n"
        );
        assert_eq!(
            said(&session, "exec 3>/dev/null; echo x >&3; exec 3>&-")
                .await
                .0,
            0
        );
        assert_eq!(
            said(&session, "exec no-such-program; echo stays")
                .await
                .1
                .lines()
                .last(),
            Some("stays")
        );
        let leaked = said(&session, "ls -1 /proc/self/fd").await.1;
        assert_eq!(
            leaked, "0\n1\n2\n3\n",
            "a command inherits nothing of ours; 3 is its own"
        );
        let unset = said(&session, "env | grep -i ^__fdguard; echo ${PROMPT_COMMAND:+there} | bash -c 'cat; echo ${PROMPT_COMMAND-none}'").await;
        assert_eq!(unset.1, "there\nnone\n");
        session.close(SessionEndReason::Asked).await;
    });
}

#[test]
fn a_configured_cap_is_kept() {
    on_host_runtime(async {
        let mut spec = SessionSpec::new(SessionProgram::Bash);
        spec.output_cap = 100;
        let (session, _hub) = start(spec).await;
        let done = run(&session, "seq 1000").await;
        assert_eq!(done.stdout.dropped.unwrap().bytes, 3893 - 100);
        session.close(SessionEndReason::Asked).await;
    });
}
