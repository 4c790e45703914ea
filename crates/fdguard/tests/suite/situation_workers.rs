//! Situation 4: the table of a worker outlives it, however it ends.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::software;

use super::fdguard;
use super::running::{await_end, free_port, signal};
use super::situation::{Answer, Session, get, line_of, pause_until, python, source, words};

/// The workers of a gunicorn, with the number of files that each holds, and its arbiter.
struct Crew {
    arbiter: u32,
    held: BTreeMap<u32, u64>,
}

/// Three clients, until each of three workers has answered thirty times at least.
fn exercise(port: u16) -> Crew {
    let crew = Mutex::new(Crew {
        arbiter: 0,
        held: BTreeMap::new(),
    });
    let is_done = || {
        let held = &crew.lock().unwrap().held;
        held.len() == 3 && held.values().all(|count| *count >= 30)
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_done() {
                    assert!(Instant::now() < deadline, "{:?}", crew.lock().unwrap().held);
                    let text = get(port);
                    let told = text.rsplit("WORKER ").next().unwrap();
                    let told: Vec<u64> = told.split(' ').map(|one| one.parse().unwrap()).collect();
                    let mut crew = crew.lock().unwrap();
                    let pid = u32::try_from(told[0]).unwrap();
                    let held = crew.held.entry(pid).or_default();
                    *held = told[1].max(*held);
                    crew.arbiter = u32::try_from(told[2]).unwrap();
                }
            });
        }
    });
    crew.into_inner().unwrap()
}

fn gunicorn(port: u16) -> Option<Vec<OsString>> {
    let gunicorn = software("venv/bin/gunicorn")?;
    let address = format!("127.0.0.1:{port}");
    let flags = ["-w", "3", "--no-control-socket"];
    let mut words = words([&gunicorn]);
    // The control socket is a thread of newer versions, and its files are not the situation.
    words.extend(flags.map(OsString::from));
    words.extend(["-b", &address, "--chdir"].map(OsString::from));
    words.push(source("").into());
    words.push("flaskapp:app".into());
    Some(words)
}

/// Each worker has a finding with the application's line, and no other process has one.
#[track_caller]
fn assert_named(answer: &Answer, workers: &BTreeMap<u32, u64>, file: &str) {
    let line = line_of(file, "LEAK");
    answer.assert_blamed(file, &[line]);
    answer.assert_origins();
    let blaming = answer.blaming(file, &[line]);
    for (pid, held) in workers {
        let own = blaming.iter().find(|one| one["pid"] == *pid);
        let own = own.unwrap_or_else(|| panic!("worker {pid}: {}", answer.brief()));
        assert_eq!(own["origin"]["opened"], *held, "{}", answer.brief());
    }
    assert_eq!(answer.verdict(), "leaking", "{}", answer.brief());
}

#[test]
fn situation_4_workers_of_gunicorn_that_end_by_term_keep_their_lines() {
    for verb in ["trace", "check"] {
        let port = free_port();
        let Some(words) = gunicorn(port) else { return };
        let session = Session::start(verb, &words);
        let crew = exercise(port);
        signal(crew.arbiter, Signal::TERM);
        let answer = session.end();
        assert_named(&answer, &crew.held, "flaskapp.py");
        assert_eq!(answer.code, 1, "{}", answer.brief());
    }
}

#[test]
fn situation_4_workers_of_gunicorn_that_are_killed_keep_their_lines() {
    let port = free_port();
    let Some(words) = gunicorn(port) else { return };
    let session = Session::start("trace", &words);
    let crew = exercise(port);
    for worker in crew.held.keys() {
        signal(*worker, Signal::KILL);
        await_end(*worker);
    }
    signal(crew.arbiter, Signal::TERM);
    let answer = session.end();
    assert_named(&answer, &crew.held, "flaskapp.py");
}

#[test]
fn situation_4_the_text_folds_the_workers() {
    let port = free_port();
    let Some(words) = gunicorn(port) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report");
    let mut command = fdguard();
    command
        .args(["trace", "-o"])
        .arg(&file)
        .arg("--")
        .args(&words);
    let null = std::process::Stdio::null;
    let mut child = command.stdout(null()).stderr(null()).spawn().unwrap();
    let crew = exercise(port);
    signal(crew.arbiter, Signal::TERM);
    child.wait().unwrap();
    let report = std::fs::read_to_string(&file).unwrap();
    let line = line_of("flaskapp.py", "LEAK");
    let folded = report
        .lines()
        .find(|text| text.contains("3 workers of gunicorn"));
    let folded = folded.unwrap_or_else(|| panic!("{report}"));
    assert!(folded.contains(&format!("flaskapp.py:{line}")), "{report}");
}

fn pool(verb: &str, end: &str) {
    let Some(python) = python() else { return };
    let words = words([&python, &source("pool.py"), &"0.1", &"135", &end]);
    let answer = Answer::to(verb, &words);
    let pair = |told: &str| {
        let (pid, count) = told.split_once(' ').unwrap();
        (pid.parse().unwrap(), count.parse().unwrap())
    };
    let workers: BTreeMap<u32, u64> = answer.told("WORKER").into_iter().map(pair).collect();
    assert_eq!(workers.len(), 3);
    assert_named(&answer, &workers, "pool.py");
    assert_eq!(answer.code, 1, "{}", answer.brief());
}

#[test]
fn situation_4_workers_of_a_pool_that_end_by_term_keep_their_lines() {
    pool("trace", "term");
    pool("check", "term");
}

#[test]
fn situation_4_workers_of_a_pool_that_are_killed_keep_their_lines() {
    pool("trace", "kill");
}

/// The oldest worker is killed early; its successor and the others continue.
#[test]
fn situation_4_a_worker_that_is_killed_early_is_not_forgotten() {
    let port = free_port();
    let Some(words) = gunicorn(port) else { return };
    let session = Session::start("trace", &words);
    let crew = exercise(port);
    let (first, held) = crew.held.first_key_value().unwrap();
    signal(*first, Signal::KILL);
    await_end(*first);
    let begin = Instant::now();
    // The others and the successor serve some more requests.
    for number in 1..=20 {
        get(port);
        pause_until(begin + Duration::from_millis(100) * number);
    }
    signal(crew.arbiter, Signal::TERM);
    let answer = session.end();
    let line = line_of("flaskapp.py", "LEAK");
    let blaming = answer.blaming("flaskapp.py", &[line]);
    let own = blaming.iter().find(|one| one["pid"] == *first);
    let own = own.unwrap_or_else(|| panic!("{}", answer.brief()));
    assert_eq!(own["origin"]["opened"], *held, "{}", answer.brief());
}
