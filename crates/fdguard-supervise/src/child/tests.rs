use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fdguard_process::reserve::Reserve;
use fdguard_process::signals::{self, Signals};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use testkit::StoppedProcess;

use super::{Bounded, Helper, HelperEnd, HelperOutput, KEPT, null};
use crate::poll::{Interest, Readiness};

const LONG: Duration = Duration::from_secs(60);

fn start(helper: Helper, within: Duration) -> Bounded {
    Bounded::start(helper, &null().unwrap(), Instant::now(), within).unwrap()
}

/// Waits for its descriptors and deadline.
fn wait(bounded: &Bounded) -> Readiness {
    let mut wants = Interest::default();
    bounded.wants(&mut wants);
    wants.wait().unwrap()
}

fn run(mut bounded: Bounded) -> (HelperEnd, Bounded) {
    loop {
        let ready = wait(&bounded);
        if let Some(ended) = bounded.poll(Instant::now(), &ready) {
            return (ended, bounded);
        }
    }
}

fn until_gone(bounded: &mut Bounded) {
    while !bounded.is_gone() {
        let ready = wait(bounded);
        assert_eq!(bounded.poll(Instant::now(), &ready), None, "told once");
    }
}

fn shell(line: &str, within: Duration) -> (HelperEnd, Option<String>) {
    let (ended, bounded) = run(start(Helper::shell(line), within));
    (ended, bounded.last_words())
}

/// A process that has written its pid here, if it is alive.
fn living(place: &Path) -> Option<PathBuf> {
    let pid: u32 = fs::read_to_string(place).unwrap().trim().parse().unwrap();
    Some(PathBuf::from(format!("/proc/{pid}"))).filter(|dir| dir.exists())
}

#[test]
fn its_end_and_its_last_words_are_told() {
    assert_eq!(shell("exit 3", LONG), (HelperEnd::Code(3), None));
    let (ended, said) = shell("echo no room >&2; echo >&2; kill -TERM $$", LONG);
    assert_eq!(
        (ended, said.as_deref()),
        (HelperEnd::Signal(15), Some("no room"))
    );
    let (ended, bounded) = run(start(Helper::shell("printf 'a\\033b' >&2; exit 4"), LONG));
    assert_eq!(bounded.account(ended), "exited with status 4: a?b");
}

#[test]
fn complaints_alone_are_heard_or_everything() {
    let line = "echo complaint >&2; echo report";
    assert_eq!(shell(line, LONG).1.as_deref(), Some("complaint"));
    let all = Helper {
        heard: HelperOutput::All,
        ..Helper::shell(line)
    };
    assert_eq!(
        run(start(all, LONG)).1.last_words().as_deref(),
        Some("report")
    );
}

#[test]
fn a_flood_of_complaints_does_not_fill_the_memory_or_stop_it() {
    let line = "yes 'a line of some length that says nothing' | head -c 1000000 >&2; echo last >&2";
    let (ended, bounded) = run(start(Helper::shell(line), LONG));
    assert_eq!(
        (ended, bounded.last_words().as_deref()),
        (HelperEnd::Code(0), Some("last"))
    );
    assert_eq!(bounded.said.len(), KEPT);
}

#[test]
fn it_is_ended_with_its_children_when_the_time_is_up() {
    let started = Instant::now();
    let (ended, mut bounded) = run(start(
        Helper::shell("sleep 600 & sleep 600"),
        Duration::from_millis(200),
    ));
    assert_eq!(ended, HelperEnd::TimeUp);
    assert_eq!(bounded.account(ended), "did not finish within 200ms");
    until_gone(&mut bounded);
    assert!(started.elapsed() < LONG);
}

#[test]
fn one_that_stops_its_keeper_again_and_again_is_ended_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let (begin, sleeper) = (dir.path().join("begin"), dir.path().join("sleeper"));
    let line = format!(
        "cd {}; trap '' TERM; setsid sleep 600 & echo $! > s; mv s sleeper; \
         until test -e begin; do sleep 0.01; done; while :; do kill -STOP $PPID; done",
        dir.path().display()
    );
    let bounded = start(Helper::shell(&line), Duration::from_millis(500));
    fs::write(begin, "").unwrap();
    let started = Instant::now();
    let (ended, mut bounded) = run(bounded);
    assert_eq!(ended, HelperEnd::TimeUp);
    until_gone(&mut bounded);
    assert!(started.elapsed() < LONG / 2, "{:?}", started.elapsed());
    assert_eq!(living(&sleeper), None);
}

#[test]
fn a_child_in_a_session_of_its_own_does_not_outlive_its_helper() {
    let dir = tempfile::tempdir().unwrap();
    let (sessions, orphan) = (dir.path().join("session"), dir.path().join("orphan"));
    let line = format!(
        "cd {}; setsid sh -c 'echo $$ > s; mv s session; exec sleep 600' & \
         (setsid sh -c 'echo $$ > o; mv o orphan; exec sleep 600' &) ; \
         until test -e session && test -e orphan; do sleep 0.01; done; exit 0",
        dir.path().display()
    );
    let (ended, bounded) = run(start(Helper::shell(&line), LONG));
    assert_eq!(ended, HelperEnd::Code(0));
    assert!(bounded.is_gone());
    assert_eq!((living(&sessions), living(&orphan)), (None, None));
}

#[test]
fn signals_that_are_blocked_or_ignored_here_are_not_so_in_the_helper() {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let ignored = status.lines().find(|line| line.starts_with("SigIgn:"));
    assert_ne!(
        ignored,
        Some("SigIgn:\t0000000000000000"),
        "PIPE is ignored here"
    );
    let _taken = Signals::listen(signals::forwardable()).unwrap();
    let look = |name: &str| shell(&format!("grep {name}: /proc/self/status >&2"), LONG).1;
    for name in ["SigBlk", "SigIgn"] {
        let none = format!("{name}:?0000000000000000");
        assert_eq!(look(name), Some(none));
    }
    // A signal that is blocked here works there.
    assert_eq!(shell("kill -TERM $$", LONG).0, HelperEnd::Signal(15));
}

#[test]
fn one_that_ignores_term_ends_at_its_deadline() {
    let began = Instant::now();
    let line = "trap '' TERM HUP INT; echo deaf >&2; while :; do sleep 600; done";
    let mut bounded = start(Helper::shell(line), LONG);
    while bounded.last_words().is_none() {
        let ready = wait(&bounded);
        assert_eq!(bounded.poll(Instant::now(), &ready), None);
    }
    let late = Instant::now() + LONG;
    assert_eq!(
        bounded.poll(late, &Readiness::default()),
        Some(HelperEnd::TimeUp)
    );
    until_gone(&mut bounded);
    assert!(began.elapsed() < LONG, "it did not wait for the sleep");
}

#[test]
fn the_turn_does_not_wait_for_what_cannot_be_ended() {
    let mut bounded = start(Helper::shell("exec sleep 600"), LONG);
    let stuck = StoppedProcess::new(bounded.tree.keeper());
    let late = Instant::now() + LONG;
    assert_eq!(
        bounded.poll(late, &Readiness::default()),
        Some(HelperEnd::TimeUp)
    );
    assert_eq!(bounded.poll(late, &Readiness::default()), None);
    assert!(!bounded.is_gone());
    drop(stuck);
    until_gone(&mut bounded);
}

#[test]
fn an_end_before_the_deadline_that_is_seen_late_is_an_end() {
    let mut bounded = start(Helper::shell("exit 5"), LONG);
    let late = Instant::now() + LONG;
    let mut wants = Interest::default();
    wants.read(bounded.tree.fd());
    let ready = wants.wait().unwrap();
    assert_eq!(bounded.poll(late, &ready), Some(HelperEnd::Code(5)));
}

#[test]
fn a_keeper_that_somebody_kills_is_told() {
    let mut bounded = start(Helper::shell("exec sleep 600"), LONG);
    let main = bounded.tree.pidfd().unwrap().try_clone_to_owned().unwrap();
    let keeper = Pid::from_raw(bounded.tree.keeper().cast_signed()).unwrap();
    kill_process(keeper, Signal::KILL).unwrap();
    let ended = loop {
        let ready = wait(&bounded);
        if let Some(ended) = bounded.poll(Instant::now(), &ready) {
            break ended;
        }
    };
    assert_eq!(ended, HelperEnd::Lost);
    drop(bounded);
    let mut wants = Interest::default();
    wants.read(main.as_fd());
    wants.until(Instant::now() + LONG);
    assert!(wants.wait().unwrap().has(&main), "it was killed as well");
}

#[test]
fn what_our_parent_meant_for_us_is_not_handed_on() {
    let variables = [
        ("LISTEN_FDS", "1"),
        ("LISTEN_PID", "1"),
        ("LISTEN_FDNAMES", "a"),
        ("NOTIFY_SOCKET", "/run/notify"),
        ("WATCHDOG_USEC", "1"),
        ("WATCHDOG_PID", "1"),
        ("GIVEN", "first"),
        ("GIVEN", "last"),
    ];
    let mut helper =
        Helper::shell("env | grep -cE '^(LISTEN|NOTIFY|WATCHDOG)_' >&2; test $GIVEN = last");
    let given = variables.map(|(name, value)| (name.into(), value.into()));
    helper.environment.extend(given);
    let (ended, bounded) = run(start(helper, LONG));
    assert_eq!(bounded.account(ended), "exited with status 0: 0");
}

/// Names of the descriptors of this process, and its children.
fn held() -> (Vec<PathBuf>, String) {
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    let mut held: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    held.sort();
    let children = fs::read_to_string("/proc/thread-self/children").unwrap();
    (held, children)
}

#[test]
fn many_helpers_leave_no_descriptor_and_no_process() {
    let null = null().unwrap();
    let lines = ["exit 0", "setsid sleep 600 & exit 1", "exec sleep 600"];
    let before = held();
    for number in 0..150 {
        let line = lines[number % lines.len()];
        let (now, helper) = (Instant::now(), Helper::shell(line));
        let mut bounded = Bounded::start(helper, &null, now, LONG).unwrap();
        if number % 3 < 2 {
            run(bounded);
        } else if number % 2 == 0 {
            bounded.poll(now + LONG, &Readiness::default());
        }
        // The others are dropped while they run.
    }
    let absent = Helper::new(vec!["/absent/program".into()]);
    Bounded::start(absent, &null, Instant::now(), LONG).unwrap_err();
    assert_eq!(held(), before);
}

/// Takes every remaining number.
fn fill() -> Vec<OwnedFd> {
    std::iter::from_fn(|| rustix::io::dup(rustix::stdio::stdin()).ok()).collect()
}

#[test]
fn it_starts_with_a_full_table_when_numbers_are_lent() {
    let null = null().unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(64);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    let begin = || {
        let helper = Helper::shell("echo heard >&2; exit 6");
        Bounded::start(helper, &null, Instant::now(), LONG)
    };
    // With fewer, it is started anyway, and its output is not read.
    for (lent, words) in [(Reserve::FOR_A_START + 4, Some("heard")), (4, None)] {
        let mut reserve = Reserve::new(lent).unwrap();
        let taken = fill();
        begin().unwrap_err();
        let (ended, bounded) = run(reserve.lend(begin).unwrap());
        assert_eq!(
            (ended, bounded.last_words().as_deref()),
            (HelperEnd::Code(6), words)
        );
        drop(taken);
    }
}
