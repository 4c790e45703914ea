//! Whole sessions from the warm interpreter: everything that a session started cold promises.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_host::receipt::Reason;
use fdguard_host::session::{Channel, Hub, Outcome, PYTHON_DRIVER, Program, Session, Spec};
use fdguard_host::warm::Pool;

use super::session_support::{on_host_runtime, run, run_for, said};
use super::warm::{keeper, python};

async fn hub() -> (Arc<Hub>, Arc<Pool>) {
    let hub = Hub::open().unwrap();
    let pool = Pool::start(&python(), &keeper(), PYTHON_DRIVER).await;
    let pool = Arc::new(pool.unwrap());
    hub.set_warm(Arc::clone(&pool));
    (hub, pool)
}

fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let mut fields = stat.rsplit(") ").next().unwrap().split(' ');
    fields.nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_warm_session_is_a_session_on_a_terminal_and_on_pipes() {
    on_host_runtime(async {
        let (hub, pool) = hub().await;
        let [zygote, _] = pool.processes().await.unwrap();
        for on_pipes in [false, true] {
            let mut spec = Spec::new(Program::Python);
            if on_pipes {
                spec.channel = Channel::Pipes;
            }
            let session = Session::start("test", spec, &hub).await.unwrap();
            let pid = session.pid().unwrap();
            assert_eq!(parent(parent(pid)), zygote, "its keeper's parent");
            assert_eq!(
                said(&session, "x = 20\nprint('hi')\nx + 1").await,
                (0, "hi\n21\n".to_owned())
            );
            assert_eq!(said(&session, "1/0").await.0, 1);
            let terminal = if on_pipes { "False\n" } else { "True\n" };
            assert_eq!(
                said(&session, "__import__('sys').stdout.isatty()").await.1,
                terminal
            );
            assert_eq!(
                said(&session, "__name__, __import__('sys').argv").await.1,
                "('__main__', [''])\n"
            );
            let slow = "import time\nprint('begun')\ntime.sleep(1000)";
            let done = run_for(&session, slow, Duration::from_millis(300)).await;
            assert_eq!(done.outcome, Outcome::TimedOut);
            assert!(!done.was_reset, "an interrupt was enough");
            assert_eq!(said(&session, "x").await, (0, "20\n".to_owned()));
            let done = run(&session, "exit(7)").await;
            assert_eq!(done.outcome, Outcome::ProgramEnded { status: Some(7) });
            let receipt = session.close(Reason::Asked).await;
            assert_eq!((receipt.survivors, receipt.descriptors_left), (Some(0), 0));
        }
        pool.close().await;
    });
}

#[test]
fn a_warm_session_is_ready_soon() {
    on_host_runtime(async {
        let (hub, pool) = hub().await;
        let (mut starts, mut closes) = (Vec::new(), Vec::new());
        for _ in 0..30 {
            let begin = Instant::now();
            let session = Session::start("test", Spec::new(Program::Python), &hub)
                .await
                .unwrap();
            starts.push(begin.elapsed());
            assert_eq!(said(&session, "1").await.1, "1\n");
            let begin = Instant::now();
            assert!(session.close(Reason::Asked).await.clean);
            closes.push(begin.elapsed());
        }
        starts.sort_unstable();
        closes.sort_unstable();
        println!(
            "warm session: ready {:?}, closed {:?} (medians)",
            starts[15], closes[15]
        );
        // The figure is measured on a quiet machine; this is far above it, and below any cold start.
        assert!(starts[0] < Duration::from_millis(100), "{starts:?}");
        pool.close().await;
    });
}

#[test]
fn a_session_with_settings_of_its_own_is_started_cold() {
    on_host_runtime(async {
        let (hub, pool) = hub().await;
        let [zygote, _] = pool.processes().await.unwrap();
        let mut spec = Spec::new(Program::Python);
        spec.environment = vec![("PYTHONHASHSEED".to_owned(), "0".to_owned())];
        let session = Session::start("test", spec, &hub).await.unwrap();
        assert_ne!(parent(parent(session.pid().unwrap())), zygote);
        let seed = "__import__('os').environ['PYTHONHASHSEED']";
        assert_eq!(said(&session, seed).await.1, "'0'\n");
        session.close(Reason::Asked).await;
        pool.close().await;
    });
}
