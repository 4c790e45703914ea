//! Concurrency: threads, processes, and killed processes.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use fdguard_core::Text;
use fdguard_files::registry::{
    Claim, Error, NewRow, RegistryRow, RowChange, RowEnd, RowFilter, RowState,
};
use fdguard_files::{FileVerdict, Options, Registry, inspect};
use fdguard_probe::Probe;
use fdguard_proc::ProcessId;
use jiff::Timestamp;

use super::{Place, owner, session, state};
use crate::suite::integrity;

#[test]
fn r51_one_of_many_closers_wins_and_the_others_are_told_who() {
    let place = Place::new();
    let registry = place.open();
    for round in 0..5 {
        let id = format!("s{round}");
        registry.add(session(&id)).unwrap();
        let together = Barrier::new(8);
        let results: Vec<Result<Claim, Error>> = std::thread::scope(|scope| {
            let closers: Vec<_> = (0..8)
                .map(|number| {
                    let (registry, id, together) = (registry.clone(), &id, &together);
                    scope.spawn(move || {
                        together.wait();
                        registry.begin_closing(id, &owner(&format!("closer {number}")))
                    })
                })
                .collect();
            closers
                .into_iter()
                .map(|closer| closer.join().unwrap())
                .collect()
        });
        let winner = results
            .iter()
            .find_map(|result| result.as_ref().ok())
            .unwrap();
        let told = results.iter().filter(|result| {
            matches!(result, Err(Error::AlreadyClosing { owner, .. }) if *owner == winner.owner)
        });
        assert_eq!(told.count(), 7);
        registry
            .finish(winner, RowEnd::Closed, "asked", None)
            .unwrap();
    }
}

/// Adds one file to an entry, retrying as often as needed.
fn track(registry: &Registry, id: &str, file: &str) {
    loop {
        let row = registry.get(id).unwrap().unwrap();
        let mut files = row.files;
        files.push(Text::from(file));
        let change = RowChange {
            files: Some(files),
            ..RowChange::default()
        };
        match registry.update(id, row.version, change) {
            Ok(_) => return,
            Err(Error::Stale { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn r51_five_threads_with_five_updates_each_lose_none() {
    let place = Place::new();
    let registry = place.open();
    registry.add(session("s")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..5 {
            let registry = registry.clone();
            scope.spawn(move || {
                for update in 0..5 {
                    track(&registry, "s", &format!("{thread}/{update}"));
                }
            });
        }
    });
    all_files(&registry.get("s").unwrap().unwrap(), 5, 5);
}

fn all_files(row: &RegistryRow, writers: usize, each: usize) {
    let mut files: Vec<_> = row
        .files
        .iter()
        .map(|file| file.to_lossy().into_owned())
        .collect();
    files.sort();
    files.dedup();
    assert_eq!(files.len(), writers * each);
    assert_eq!(row.version, (writers * each + 1) as u64);
}

/// Another process: this test program with a command to run.
fn helper(what: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "suite::registry::processes::role",
            "--nocapture",
        ])
        .env("FDGUARD_TEST_REGISTRY", path)
        .env("FDGUARD_TEST_DO", what)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The lines that a helper prints, without those of the test harness.
fn said(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).filter_map(|line| {
        let (_, said) = line.split_once("said ")?;
        Some(said.to_owned())
    })
}

#[test]
#[ignore = "a role that other tests start"]
fn role() {
    let (Ok(path), Ok(what)) = (
        std::env::var("FDGUARD_TEST_REGISTRY"),
        std::env::var("FDGUARD_TEST_DO"),
    ) else {
        return testkit::skip("no role was given");
    };
    let registry = Registry::open(Path::new(&path)).unwrap();
    let pid = std::process::id();
    match what.as_str() {
        "update" => {
            for update in 0..5 {
                track(&registry, "s", &format!("{pid}/{update}"));
                let new = session(&format!("{pid}/{update}"));
                registry.add(new).unwrap();
            }
        }
        _ => write_for_ever(&registry, pid),
    }
}

/// Adds, closes and updates until it is killed; prints each step when it is complete.
fn write_for_ever(registry: &Registry, pid: u32) {
    let own = ProcessId::current().unwrap();
    let mut out = std::io::stdout();
    for number in 0.. {
        let id = format!("{pid}/{number}");
        let new = NewRow {
            process: Some(own),
            ..session(&id)
        };
        registry.add(new).unwrap();
        writeln!(out, "said {id} running").unwrap();
        track(registry, &id, "a file");
        if number % 3 == 1 {
            let claim = registry.begin_closing(&id, &owner("helper")).unwrap();
            writeln!(out, "said {id} closing").unwrap();
            registry
                .finish(&claim, RowEnd::Closed, "asked", None)
                .unwrap();
            writeln!(out, "said {id} closed").unwrap();
        } else if number % 3 == 2 {
            registry.begin_closing(&id, &owner("helper")).unwrap();
            writeln!(out, "said {id} closing").unwrap();
        }
    }
}

#[test]
fn r51_eight_processes_with_five_updates_each_lose_none() {
    let place = Place::new();
    place.open().add(session("s")).unwrap();
    let children: Vec<_> = (0..8).map(|_| helper("update", &place.path)).collect();
    for mut child in children {
        assert_eq!(said(&mut child).count(), 0);
        assert!(child.wait().unwrap().success());
    }
    let registry = place.open();
    all_files(&registry.get("s").unwrap().unwrap(), 8, 5);
    let counts = registry.counts(&RowFilter::default()).unwrap();
    assert_eq!(counts.len(), 1);
    assert_eq!((counts[0].state, counts[0].count), (RowState::Running, 41));
}

#[test]
fn r51_eight_processes_make_one_registry_together() {
    let place = Place::new();
    let children: Vec<_> = (0..8).map(|_| helper("write", &place.path)).collect();
    let mut all = Vec::new();
    for mut child in children {
        let mut lines = said(&mut child);
        // Its first entry is stored; from here on it is not needed.
        let first = lines.next().unwrap();
        all.push(first.split(' ').next().unwrap().to_owned());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let registry = place.open();
    for id in all {
        assert!(registry.get(&id).unwrap().is_some(), "{id}");
    }
    let names = fs::read_dir(place.dir.path()).unwrap();
    let names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
    assert!(names.len() <= 3, "no unfinished ones are left: {names:?}");
}

#[test]
fn r45_killed_at_any_point_it_opens_and_what_is_gone_is_noted() {
    let place = Place::new();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..30 {
        let mut child = helper("write", &place.path);
        let pid = child.id();
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let wanted = 1 + (seed % 12) as usize;
        let mut lines = said(&mut child);
        let mut told: Vec<String> = lines.by_ref().take(wanted).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        told.extend(lines);
        let registry = place.open();
        for line in &told {
            let (id, word) = line.split_once(' ').unwrap();
            let now = state(&registry, id);
            assert!(
                now >= RowState::parse(word).unwrap(),
                "round {round}: {line}, but {now:?}"
            );
        }
        let open = registry.list(&RowFilter::open()).unwrap().len();
        let dry = registry
            .reconcile(Timestamp::now(), &ProcessId::liveness, true)
            .unwrap();
        assert_eq!(dry.changed.len(), open);
        assert_eq!(
            registry.list(&RowFilter::open()).unwrap().len(),
            open,
            "a dry run"
        );
        let report = registry
            .reconcile(Timestamp::now(), &ProcessId::liveness, false)
            .unwrap();
        assert_eq!(report.changed, dry.changed);
        for changed in &report.changed {
            let expected = match changed.from {
                RowState::Closing => "closing_owner_gone",
                _ => "process_gone",
            };
            assert_eq!(changed.reason, expected);
            assert!(changed.id.starts_with(&format!("{pid}/")));
        }
        assert!(registry.list(&RowFilter::open()).unwrap().is_empty());
    }
    assert_eq!(integrity(&place.path), "ok");
}

#[test]
fn threads_that_open_and_close_in_turn_never_meet_in_the_wrong_table() {
    let place = Place::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let place = &place;
            scope.spawn(move || {
                for round in 0..10 {
                    let registry = place.open();
                    registry.add(session(&format!("{thread}/{round}"))).unwrap();
                }
            });
        }
    });
    let registry = place.open();
    assert_eq!(registry.list(&RowFilter::default()).unwrap().len(), 40);
}

#[test]
fn r46_a_registry_that_stays_busy_names_the_holder() {
    let place = Place::new();
    let registry = place.open();
    let script = "import sqlite3,sys\nc=sqlite3.connect(sys.argv[1],isolation_level=None)\nc.execute('BEGIN IMMEDIATE')\nprint('ready',flush=True)\nsys.stdin.read()";
    let child = testkit::ScriptedProcess::python(script, &place.path);
    let started = Instant::now();
    let refused = registry.add(session("s")).unwrap_err().to_string();
    assert!(started.elapsed() >= Duration::from_secs(9), "{refused}");
    assert!(
        refused.contains(&format!("python3 (pid {})", child.id())),
        "{refused}"
    );
    drop(child);
    registry.add(session("s")).unwrap();
}

#[test]
fn a_registry_with_busy_writers_is_not_damaged_for_who_looks_from_outside() {
    let place = Place::new();
    let mut writers: Vec<_> = (0..3).map(|_| helper("write", &place.path)).collect();
    // Their output must be read: otherwise they would block on a full pipe.
    let talk: Vec<_> = writers
        .iter_mut()
        .map(|writer| {
            let mut lines = said(writer);
            assert!(lines.next().is_some());
            std::thread::spawn(move || lines.count())
        })
        .collect();
    // As when opening a registry: without a copy for SQLite to check.
    let probe = Probe::new().unwrap();
    let options = Options {
        check: None,
        ..Options::default()
    };
    let looks = (0..4).map(|_| inspect(&probe, &place.path, options).unwrap());
    let found: Vec<_> = looks.collect();
    for writer in &mut writers {
        writer.kill().unwrap();
        writer.wait().unwrap();
    }
    for talk in talk {
        assert!(talk.join().unwrap() > 0, "they wrote all the time");
    }
    for found in found {
        assert_ne!(found.verdict, FileVerdict::Damaged, "{}", found.summary);
    }
}

/// The processor time of this process so far: a busy machine does not change it.
fn worked() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(spent).unwrap()
}

/// How much work a comparison is with this many entries of another boot, all of them gone.
fn compare(many: usize) -> Duration {
    let place = Place::new();
    drop(place.open());
    let connection = rusqlite::Connection::open(&place.path).unwrap();
    let sql = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {many})
         INSERT INTO entries(id, kind, state, version, process, started_at, files)
         SELECT 's' || i, 'session', 'running', 1, '3f2a9c04-0b1d-4e5f-8a6b-00c7d8e9fa0b:' || i || ':1',
                '2026-01-01T00:00:00Z', '[]' FROM n"
    );
    assert_eq!(connection.execute(&sql, []).unwrap(), many);
    drop(connection);
    let registry = place.open();
    let begin = worked();
    let report = registry.reconcile(Timestamp::now(), &ProcessId::liveness, false);
    assert_eq!(report.unwrap().changed.len(), many);
    worked() - begin
}

#[test]
fn what_a_killed_host_left_is_compared_in_time_that_grows_as_its_number() {
    let few = compare(5_000);
    let many = compare(40_000);
    // Eight times as many; it used to take the square of that.
    assert!(many < few * 24, "{few:?}, then {many:?}");
}
