//! An agent that requests its own end gets the answer first.

use std::sync::Arc;
use std::time::Duration;

use fdguard_host::scope::{
    CloseAnswer, CloseLimits, CloseReason, CloseTicket, ResourceRole, Scopes, tcp_callers,
    unix_caller,
};
use fdguard_host::session::{Exec, ExecOutcome};
use fdguard_proc::ProcessId;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, UnixListener};

use super::host_harness::bash;
use super::scope_harness::{Ground, LONG, heard, line, lives, plan, shell, stranger, until};

/// The delay between the answer and the end. Long enough to read the answer before, even on a busy
/// machine.
const SOON: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r57_an_agent_that_closes_its_own_scope_over_tcp_reads_the_answer() {
    let ground = Ground::new();
    let scopes = Scopes::new(ground.means());
    let scope = scopes.create(ground.spec()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // The request comes from a grandchild that left its session and runs until it is ended.
    let script = format!(
        "(setsid bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; echo close >&3; read -r answer <&3; echo \"$answer\"; exec sleep 1000' &); sleep 1000"
    );
    let (program, out) = heard(shell(&script));
    let taken = scope.start(program, ResourceRole::Main).await.unwrap();
    let (stream, peer) = tokio::time::timeout(LONG, listener.accept())
        .await
        .unwrap()
        .unwrap();
    let local = stream.local_addr().unwrap();
    let callers = tokio::task::spawn_blocking(move || tcp_callers(local, peer))
        .await
        .unwrap();
    assert_eq!(callers.len(), 1, "{callers:?}");
    let mut stream = BufReader::new(stream);
    let mut asked = String::new();
    stream.read_line(&mut asked).await.unwrap();
    assert_eq!(asked, "close\n");
    let closing = scopes
        .close(scope.id(), CloseLimits::default(), &callers, SOON)
        .await
        .unwrap();
    let CloseAnswer::Soon(accepted) = &closing else {
        panic!("{closing:?}");
    };
    let mut answer = serde_json::to_string(&closing).unwrap();
    answer.push('\n');
    stream.write_all(answer.as_bytes()).await.unwrap();
    let read: serde_json::Value = serde_json::from_str(&line(&out).await).unwrap();
    assert_eq!(read["ticket"], accepted.ticket.as_str());
    assert!(read["ends_at"].as_str().unwrap().ends_with('Z'));
    let said = scopes.ticket(&accepted.ticket).unwrap();
    assert!(matches!(said, CloseTicket::Pending(_)), "{said:?}");

    let clean_up = scope.closed().await;
    assert!(clean_up.success, "{clean_up:#?}");
    assert_eq!(clean_up.reason, CloseReason::AskedFromInside);
    assert!(!lives(callers[0]) && !lives(taken.pid.unwrap()));
    let CloseTicket::Done { result } = scopes.ticket(&accepted.ticket).unwrap() else {
        panic!("it is done");
    };
    assert!(Arc::ptr_eq(&result, &clean_up));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r57_who_calls_over_a_unix_socket_is_known() {
    let ground = Ground::new();
    let scope = ground.scope();
    let path = ground.dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let script = format!(
        "import socket,time; s=socket.socket(socket.AF_UNIX); s.connect({:?}); time.sleep(1000)",
        path.to_str().unwrap()
    );
    if let Err(error) = scope
        .start(plan(&["python3", "-c", &script]), ResourceRole::Main)
        .await
    {
        testkit::skip(&format!("no python3: {error}"));
        return;
    }
    let (stream, _) = tokio::time::timeout(LONG, listener.accept())
        .await
        .unwrap()
        .unwrap();
    assert!(scope.is_inside(unix_caller(&stream).unwrap()));
    let ours = tokio::net::UnixStream::connect(&path).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    assert_eq!(unix_caller(&stream), Some(std::process::id()));
    assert!(!scope.is_inside(std::process::id()));
    drop(ours);
    scope
        .close(CloseReason::Asked, CloseLimits::default())
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r57_inside_is_who_is_below_a_program_a_session_or_carries_the_mark() {
    let (ground, host) = Ground::with_host(32).await;
    let (scope, other) = (ground.scope(), ground.scope());
    let script =
        "env -i setsid sleep 1000 & echo $!; (env -i setsid sleep 1000 & echo $!); sleep 1000";
    let (program, out) = heard(shell(script));
    scope.start(program, ResourceRole::Main).await.unwrap();
    for _ in 0..2 {
        let pid: u32 = line(&out).await.parse().unwrap();
        assert!(
            scope.is_inside(pid),
            "it has no mark, but a keeper above it"
        );
        assert!(!other.is_inside(pid));
    }
    let id = scope
        .open_session(bash(), ResourceRole::Main)
        .await
        .unwrap();
    let session = host.session(&id).unwrap().pid.unwrap();
    assert!(scope.is_inside(session) && !other.is_inside(session));
    let mut marked = stranger(&scope.environment());
    assert!(scope.is_inside(marked.id()) && !other.is_inside(marked.id()));
    let mut unmarked = stranger(&[]);
    assert!(!scope.is_inside(unmarked.id()));
    let identity = ProcessId::read(unmarked.id()).unwrap();
    other
        .take_process(
            identity,
            fdguard_host::scope::Ownership::Owned,
            ResourceRole::Main,
        )
        .unwrap();
    assert!(other.is_inside(unmarked.id()));
    for scope in [scope, other] {
        assert!(
            scope
                .close(CloseReason::Asked, CloseLimits::default())
                .await
                .success
        );
    }
    marked.wait().unwrap();
    unmarked.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_wish_gets_the_first_answer_and_results_are_forgotten() {
    let ground = Ground::new();
    let scopes = Scopes::keeping(ground.means(), Duration::from_millis(50));
    let scope = scopes.create(ground.spec()).unwrap();
    let first = scope
        .close_soon(Duration::from_millis(1), CloseLimits::default())
        .unwrap();
    let second = scope
        .close_soon(Duration::ZERO, CloseLimits::default())
        .unwrap();
    assert_eq!(first, second);
    scope.closed().await;
    let unknown = |ticket: &str| {
        scopes
            .ticket(ticket)
            .is_err_and(|it| it.code() == "unknown")
    };
    until("it is forgotten", || unknown(&first.ticket)).await;
    assert!(scopes.get(scope.id()).is_err());
    assert!(unknown("never-given"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_from_outside_gets_the_result_itself() {
    let ground = Ground::new();
    let scopes = Scopes::new(ground.means());
    let scope = scopes.create(ground.spec()).unwrap();
    let own = [std::process::id()];
    let closing = scopes
        .close(scope.id(), CloseLimits::default(), &own, SOON)
        .await
        .unwrap();
    let CloseAnswer::Done(first) = closing else {
        panic!("{closing:?}");
    };
    let again = scopes
        .close(scope.id(), CloseLimits::default(), &[], SOON)
        .await
        .unwrap();
    assert_eq!(again, CloseAnswer::Done(first));
    assert!(
        scopes
            .close("nobody", CloseLimits::default(), &[], SOON)
            .await
            .is_err()
    );
    let view = &scopes.list()[0];
    assert_eq!(serde_json::to_value(view).unwrap()["phase"], "closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r57_a_command_in_a_session_closes_the_scope_of_its_session_and_says_so() {
    let (ground, host) = Ground::with_host(32).await;
    let scopes = Scopes::new(ground.means());
    let scope = scopes.create(ground.spec()).unwrap();
    let id = scope
        .open_session(bash(), ResourceRole::Main)
        .await
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = {
        let (scopes, scope) = (scopes.clone(), Arc::clone(&scope));
        tokio::spawn(async move {
            let (mut stream, peer) = listener.accept().await.unwrap();
            let local = stream.local_addr().unwrap();
            let look = tokio::task::spawn_blocking(move || tcp_callers(local, peer));
            let callers = look.await.unwrap();
            let how = CloseLimits::default();
            let closing = scopes.close(scope.id(), how, &callers, SOON).await.unwrap();
            let answer = serde_json::to_string(&closing).unwrap() + "\n";
            stream.write_all(answer.as_bytes()).await.unwrap();
        })
    };
    let code = format!("exec 9<>/dev/tcp/127.0.0.1/{port}; read -r answer <&9; echo \"$answer\"");
    let done = host.exec(&id, Exec::new(code), None).await.unwrap();
    assert_eq!(done.outcome, ExecOutcome::Exited { status: 0 }, "{done:?}");
    server.await.unwrap();
    let ticket = scope.view().closes.unwrap().ticket;
    assert!(done.stdout.text.contains(&ticket), "{done:?}");
    let clean_up = scope.closed().await;
    assert!(clean_up.success, "{clean_up:#?}");
    assert!(host.sessions().is_empty());
    assert!(matches!(
        scopes.ticket(&ticket),
        Ok(CloseTicket::Done { .. })
    ));
}
