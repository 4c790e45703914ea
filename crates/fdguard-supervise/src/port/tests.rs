//! Real sockets held by real processes: each gets the socket as its standard input, and the test
//! closes its copy.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fdguard_probe::Probe;
use fdguard_process::listen::ListenAddress;

use super::{
    Clearing, ClearingStep, Conflict, HolderClass, OwnProcesses, PortPolicy, find_conflict,
};
use crate::poll::Interest;

const OURS: OwnProcesses<'_> = OwnProcesses {
    members: &[],
    service: "web",
    registered: &[],
};
/// A run whose supervisor cannot be alive: process 1 started at the first tick.
const OVER: &str = "4000000000.1:web";

/// A process that holds something until it is dropped.
struct Keeper(Child);

impl Keeper {
    fn of(socket: impl Into<OwnedFd>, run: Option<&str>) -> Self {
        Self::running("sleep", &["1000"], socket, run)
    }

    fn running(
        program: &str,
        words: &[&str],
        socket: impl Into<OwnedFd>,
        run: Option<&str>,
    ) -> Self {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::from(socket.into()));
        command
            .env_remove("FDGUARD_RUN")
            .envs(run.map(|run| ("FDGUARD_RUN", run)));
        Self(command.process_group(0).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn tcp(address: &str) -> (TcpListener, ListenAddress) {
    let listener = TcpListener::bind(address).unwrap();
    let at = ListenAddress::Tcp(listener.local_addr().unwrap());
    (listener, at)
}

fn seen(at: &ListenAddress) -> Option<Conflict> {
    find_conflict(&Probe::new().unwrap(), at, &OURS).unwrap()
}

fn pids(conflict: &Conflict) -> Vec<u32> {
    conflict.holders.iter().map(|it| it.pid).collect()
}

/// Polls until it is decided, as the loop does.
fn decide(clearing: &mut Clearing) -> ClearingStep {
    let probe = Probe::new().unwrap();
    loop {
        match clearing.poll(Instant::now(), &probe, &OURS).unwrap() {
            ClearingStep::Pending(_) => {}
            decided => return decided,
        }
        let mut wants = Interest::default();
        clearing.wants(&mut wants);
        wants.wait().unwrap();
    }
}

fn clearing(at: &ListenAddress, policy: PortPolicy, grace: Duration) -> Clearing {
    Clearing::new(at.clone(), policy, grace, Instant::now())
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn r24_a_stranger_at_an_ipv4_port_is_named() {
    let (listener, at) = tcp("127.0.0.1:0");
    let keeper = Keeper::of(listener, None);
    let conflict = seen(&at).unwrap();
    assert_eq!(pids(&conflict), [keeper.pid()]);
    assert!(conflict.listens && conflict.unseen.is_empty());
    let line = conflict.to_string();
    let pid = format!("pid {}", keeper.pid());
    for word in ["sleep 1000", &pid, "user ", "since 20", "unrelated process"] {
        assert!(line.contains(word), "{word}: {line}");
    }
}

#[test]
fn nobody_is_nobody() {
    let (listener, at) = tcp("127.0.0.1:0");
    drop(listener);
    assert_eq!(seen(&at), None);
    let mut clearing = clearing(&at, PortPolicy::Refuse, LONG);
    assert!(matches!(decide(&mut clearing), ClearingStep::Free));
}

#[test]
fn an_address_whose_holder_is_not_listed_is_refused() {
    let (_listener, at) = tcp("127.0.0.1:0");
    let begun = Instant::now();
    let after = |seconds| begun + Duration::from_secs(seconds);
    let mut waits = clearing(&at, PortPolicy::Wait(LONG), LONG);
    for _ in 0..10 {
        assert_eq!(waits.look_again(begun), None);
    }
    assert!(waits.look_again(after(70)).is_some(), "it waits no longer");
    let mut refuses = clearing(&at, PortPolicy::Refuse, LONG);
    let conflict = (0..10).find_map(|_| refuses.look_again(begun)).unwrap();
    let line = conflict.to_string();
    assert!(
        line.ends_with("in use by a socket that the kernel does not list"),
        "{line}"
    );
}

#[test]
fn what_holds_both_kinds_of_addresses_is_in_the_way_of_ipv4() {
    let Ok(listener) = TcpListener::bind("[::]:0") else {
        return testkit::skip("no IPv6 on this machine");
    };
    let port = listener.local_addr().unwrap().port();
    let keeper = Keeper::of(listener, None);
    for wanted in [format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
        let conflict = seen(&ListenAddress::Tcp(wanted.parse().unwrap())).unwrap();
        assert_eq!(pids(&conflict), [keeper.pid()], "{wanted}");
    }
    assert_eq!(
        pids(&seen(&ListenAddress::Any(port)).unwrap()),
        [keeper.pid()]
    );
}

#[test]
fn a_unix_path_is_held_by_who_listens_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let keeper = Keeper::of(listener, None);
    let conflict = seen(&ListenAddress::Unix(path.clone())).unwrap();
    assert_eq!(pids(&conflict), [keeper.pid()]);
    drop(keeper);
    assert_eq!(seen(&ListenAddress::Unix(path)), None);
}

#[test]
fn all_owners_of_one_socket_are_named() {
    let (listener, at) = tcp("127.0.0.1:0");
    let first = Keeper::of(listener.try_clone().unwrap(), Some(OVER));
    let second = Keeper::of(listener, None);
    let conflict = seen(&at).unwrap();
    let mut expected = [first.pid(), second.pid()];
    expected.sort_unstable();
    assert_eq!(pids(&conflict), expected);
    assert!(!conflict.is_all_ours_before(), "one of them is a stranger");
}

#[test]
fn a_socket_of_ours_is_ours() {
    let (listener, at) = tcp("127.0.0.1:0");
    let conflict = seen(&at).unwrap();
    assert_eq!(conflict.holders[0].class, HolderClass::OursNow);
    drop(listener);
}

#[test]
fn a_connection_that_has_the_port_is_told_apart_from_a_listener() {
    let (listener, _) = tcp("127.0.0.1:0");
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let conflict = seen(&ListenAddress::Tcp(client.local_addr().unwrap())).unwrap();
    assert!(!conflict.listens);
    assert!(conflict.to_string().contains("without a listener"));
}

#[test]
fn a_stranger_is_never_signalled_whatever_the_policy() {
    let (listener, at) = tcp("127.0.0.1:0");
    // One of the two was left by an earlier run: it is not touched either, because that would not
    // help.
    let mut ours = Keeper::of(listener.try_clone().unwrap(), Some(OVER));
    let mut stranger = Keeper::of(listener, None);
    for policy in [
        PortPolicy::Refuse,
        PortPolicy::EndIfOurs,
        PortPolicy::Wait(Duration::from_millis(300)),
    ] {
        let step = decide(&mut clearing(&at, policy, Duration::ZERO));
        assert!(
            matches!(step, ClearingStep::Refused(_)),
            "{policy:?}: {step:?}"
        );
    }
    assert!(stranger.lives() && ours.lives());
}

#[test]
fn another_service_and_a_run_that_goes_on_are_strangers() {
    let running = fdguard_process::run_id::RunId::own("web")
        .unwrap()
        .to_string();
    for run in [&running, "4000000000.1:other", "garbage"] {
        let (listener, at) = tcp("127.0.0.1:0");
        let mut keeper = Keeper::of(listener, Some(run));
        let step = decide(&mut clearing(&at, PortPolicy::EndIfOurs, Duration::ZERO));
        assert!(matches!(step, ClearingStep::Refused(_)), "{run}: {step:?}");
        assert!(keeper.lives());
    }
}

#[test]
fn what_an_earlier_run_left_is_ended_by_term_and_the_port_is_free() {
    let (listener, at) = tcp("127.0.0.1:0");
    let mut keeper = Keeper::of(listener, Some(OVER));
    assert!(seen(&at).unwrap().is_all_ours_before());
    let refused = decide(&mut clearing(&at, PortPolicy::Refuse, LONG));
    assert!(matches!(refused, ClearingStep::Refused(_)));
    assert!(keeper.lives(), "not without being asked to");
    let step = decide(&mut clearing(&at, PortPolicy::EndIfOurs, LONG));
    assert!(matches!(step, ClearingStep::Free), "{step:?}");
    let status = keeper.0.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(15)
    );
    assert!(TcpListener::bind(address(&at)).is_ok());
}

fn address(at: &ListenAddress) -> std::net::SocketAddr {
    match at {
        ListenAddress::Tcp(address) => *address,
        other => panic!("{other}"),
    }
}

#[test]
fn what_does_not_hear_term_is_killed_after_its_grace() {
    let (listener, at) = tcp("127.0.0.1:0");
    // Ignored signals stay ignored across exec.
    let words = ["-c", "trap '' TERM; exec sleep 1000"];
    let mut keeper = Keeper::running("sh", &words, listener, Some(OVER));
    // Wait for the exec: before it, TERM would reach the shell.
    let comm = format!("/proc/{}/comm", keeper.pid());
    while std::fs::read_to_string(&comm).unwrap() != "sleep\n" {
        std::thread::yield_now();
    }
    let step = decide(&mut clearing(
        &at,
        PortPolicy::EndIfOurs,
        Duration::from_millis(50),
    ));
    assert!(matches!(step, ClearingStep::Free), "{step:?}");
    let status = keeper.0.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9)
    );
}

#[test]
fn waiting_ends_when_the_holder_does() {
    let (listener, at) = tcp("127.0.0.1:0");
    let keeper = Keeper::of(listener, None);
    let probe = Probe::new().unwrap();
    let mut clearing = clearing(&at, PortPolicy::Wait(LONG), LONG);
    let first = clearing.poll(Instant::now(), &probe, &OURS).unwrap();
    assert!(matches!(first, ClearingStep::Pending(Some(_))), "told once");
    drop(keeper);
    assert!(matches!(decide(&mut clearing), ClearingStep::Free));
}

const ROLE: &str = "FDGUARD_TEST_PORT";

/// Runs the test again through another program, with other privileges.
fn look_through(test: &str, wrapper: &[&str], at: &ListenAddress) -> String {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), mode).unwrap();
    let output = Command::new(wrapper[0])
        .args(&wrapper[1..])
        .arg(&copy)
        .args(["--exact", "--nocapture", test])
        .env(ROLE, address(at).to_string())
        .env_remove("NEXTEST_EXECUTION_MODE")
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// In that process: prints what it finds.
fn as_looker() -> bool {
    let Ok(address) = std::env::var(ROLE) else {
        return false;
    };
    let conflict = seen(&ListenAddress::Tcp(address.parse().unwrap())).unwrap();
    println!("saw {} {conflict}", conflict.unseen.len());
    println!("remedy {}", conflict.remedy());
    true
}

fn assert_unseen(answer: &str) {
    assert!(answer.contains("saw 1 tcp:127.0.0.1:"), "{answer}");
    assert!(answer.contains("that fdguard cannot see"), "{answer}");
    assert!(answer.contains("remedy run fdguard as root"), "{answer}");
}

#[test]
fn another_users_process_is_invisible_and_said_to_be() {
    if as_looker() {
        return;
    }
    if !testkit::is_root() || !testkit::have("setpriv") {
        return testkit::skip("needs root and setpriv to look as another user");
    }
    let (listener, at) = tcp("127.0.0.1:0");
    let mut keeper = Keeper::of(listener, Some(OVER));
    let test = "port::tests::another_users_process_is_invisible_and_said_to_be";
    let wrapper = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    assert_unseen(&look_through(test, &wrapper, &at));
    assert!(keeper.lives());
}

#[test]
fn a_process_outside_of_our_pid_namespace_is_invisible_and_said_to_be() {
    if as_looker() {
        return;
    }
    let wrapper = ["unshare", "--pid", "--fork", "--mount-proc"];
    let may = testkit::is_root() && testkit::have("unshare");
    let may = may
        && Command::new(wrapper[0])
            .args(&wrapper[1..])
            .arg("true")
            .status()
            .is_ok_and(|it| it.success());
    if !may {
        return testkit::skip("needs root and unshare to look from another pid namespace");
    }
    let (listener, at) = tcp("127.0.0.1:0");
    let mut keeper = Keeper::of(listener, Some(OVER));
    let test = "port::tests::a_process_outside_of_our_pid_namespace_is_invisible_and_said_to_be";
    assert_unseen(&look_through(test, &wrapper, &at));
    assert!(keeper.lives());
}

#[test]
fn what_lives_in_a_pid_namespace_of_its_own_is_a_stranger_even_with_our_name() {
    let wrapper = ["--pid", "--fork", "--kill-child", "sleep", "1000"];
    if !testkit::is_root() || !testkit::have("unshare") {
        return testkit::skip("needs root and unshare for a pid namespace");
    }
    let (listener, at) = tcp("127.0.0.1:0");
    let mut keeper = Keeper::running("unshare", &wrapper, listener, Some(OVER));
    // Until the process inside also holds it.
    let conflict = loop {
        let conflict = seen(&at).unwrap();
        let inside = conflict.holders.iter().any(|it| it.command == "sleep 1000");
        if inside || !keeper.lives() {
            break conflict;
        }
    };
    if !keeper.lives() {
        return testkit::skip("no pid namespaces here");
    }
    let inside = conflict
        .holders
        .iter()
        .find(|it| it.command == "sleep 1000")
        .unwrap();
    assert!(
        inside.class
            == HolderClass::Stranger {
                because: "it is in another PID namespace".into()
            }
    );
    let step = decide(&mut clearing(&at, PortPolicy::EndIfOurs, Duration::ZERO));
    assert!(matches!(step, ClearingStep::Refused(_)) && keeper.lives());
}
