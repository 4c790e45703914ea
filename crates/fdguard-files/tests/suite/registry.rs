//! The registry: rules that hold between threads, processes and crashes.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use fdguard_core::Text;
use fdguard_files::Registry;
use fdguard_files::registry::state::{Standing, Step};
use fdguard_files::registry::{
    Alive, Change, Claim, End, Error, Filter, Identity, Kind, New, Owner, Row, State,
};
use jiff::Timestamp;
use proptest::prelude::{ProptestConfig, any, prop, prop_assert_eq, proptest};
use rusqlite::Connection;
use tempfile::TempDir;

use super::{settles, threads};

struct Place {
    folder: TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("registry.db");
        Self { folder, path }
    }

    fn open(&self) -> Registry {
        Registry::open(&self.path).unwrap()
    }

    fn refused(&self) -> String {
        Registry::open(&self.path).unwrap_err().to_string()
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        self.folder.path().join(format!("registry.db{suffix}"))
    }
}

fn session(id: &str) -> New {
    New::now(id, Kind::Session)
}

fn owner(name: &str) -> Owner {
    Owner {
        name: name.to_owned(),
        process: Identity::own().unwrap(),
    }
}

/// A process that never was.
fn nobody() -> Identity {
    Identity {
        started: 1,
        ..Identity::own().unwrap()
    }
}

fn state(registry: &Registry, id: &str) -> State {
    registry.get(id).unwrap().unwrap().state
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn an_entry_is_read_as_it_was_written() {
    let place = Place::new();
    let registry = place.open();
    let own = Identity::own().unwrap();
    let new = New {
        client: Some("agent 7".to_owned()),
        process: Some(own.clone()),
        host: Some(own.clone()),
        files: vec![Text::from("/var/log/a.jsonl"), Text::from(&b"\xff\xfe"[..])],
        ..session("s1")
    };
    let added = registry.add(new.clone()).unwrap();
    assert_eq!(registry.get("s1").unwrap(), Some(added.clone()));
    assert_eq!((added.version, added.state), (1, State::Running));
    assert_eq!((&added.files, &added.process), (&new.files, &Some(own)));
    assert!(matches!(registry.add(new), Err(Error::Exists { id }) if id == "s1"));
    let claim = registry.begin_closing("s1", &owner("test")).unwrap();
    let receipt = serde_json::json!({"survivors": 0});
    let ended = registry
        .finish(&claim, End::Closed, "asked", Some(receipt.clone()))
        .unwrap();
    assert!(ended.ended_at.is_some_and(|at| at >= ended.started_at));
    drop(registry);
    let again = place.open().get("s1").unwrap().unwrap();
    assert_eq!(again, ended);
    assert_eq!((again.receipt, again.version), (Some(receipt), 3));
    assert_eq!(again.reason.as_deref(), Some("asked"));
    assert_eq!(place.open().get("s2").unwrap(), None);
}

#[test]
fn r51_a_stale_version_is_refused_and_changes_nothing() {
    let place = Place::new();
    let registry = place.open();
    let seen = registry.add(session("s")).unwrap();
    let change = Change {
        client: Some("first".to_owned()),
        ..Change::default()
    };
    registry.update("s", seen.version, change).unwrap();
    let late = Change {
        client: Some("second".to_owned()),
        ..Change::default()
    };
    let refused = registry.update("s", seen.version, late);
    assert!(
        matches!(
            &refused,
            Err(Error::Stale {
                given: 1,
                now: 2,
                ..
            })
        ),
        "{refused:?}"
    );
    let row = registry.get("s").unwrap().unwrap();
    assert_eq!((row.client.as_deref(), row.version), (Some("first"), 2));
    let missing = registry.update("nobody", 1, Change::default());
    assert!(matches!(missing, Err(Error::Missing { .. })));
}

#[test]
fn r53_what_has_ended_is_never_changed_not_even_by_other_programs() {
    let place = Place::new();
    let registry = place.open();
    registry.add(session("s")).unwrap();
    let claim = registry.begin_closing("s", &owner("test")).unwrap();
    let ended = registry.finish(&claim, End::Closed, "asked", None).unwrap();
    let is_ended = |result: Result<(), Error>| matches!(result, Err(Error::Ended { .. }));
    assert!(is_ended(
        registry
            .finish(&claim, End::Failed, "again", None)
            .map(drop)
    ));
    assert!(is_ended(
        registry.begin_closing("s", &owner("late")).map(drop)
    ));
    assert!(is_ended(
        registry
            .update("s", ended.version, Change::default())
            .map(drop)
    ));
    assert!(is_ended(
        registry
            .take_over("s", ended.version, &owner("late"))
            .map(drop)
    ));
    let report = registry
        .reconcile(Timestamp::now(), &|_| Alive::Gone, false)
        .unwrap();
    assert!(report.changed.is_empty());
    assert_eq!(registry.get("s").unwrap(), Some(ended));
    drop(registry);
    let stranger = Connection::open(&place.path).unwrap();
    let refused = stranger.execute("UPDATE entries SET state = 'running'", []);
    assert!(refused.unwrap_err().to_string().contains("never changed"));
}

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
        registry.finish(winner, End::Closed, "asked", None).unwrap();
    }
}

#[test]
fn r51_the_claim_of_an_owner_that_is_gone_is_taken_over_once() {
    let place = Place::new();
    let registry = place.open();
    registry.add(session("s")).unwrap();
    let dead = Owner {
        name: "crashed".to_owned(),
        process: nobody(),
    };
    let lost = registry.begin_closing("s", &dead).unwrap();
    // What cannot be seen may live.
    let unknown = registry.begin_closing_with("s", &owner("next"), &|_| Alive::Unknown);
    assert!(matches!(unknown, Err(Error::AlreadyClosing { .. })));
    let claim = registry.begin_closing("s", &owner("next")).unwrap();
    assert_eq!(claim.took_over_from, Some(dead));
    let again = registry.begin_closing("s", &owner("third"));
    assert!(matches!(again, Err(Error::AlreadyClosing { owner, .. }) if owner.name == "next"));
    // The first one comes back after all: it has no right any more.
    let late = registry.finish(&lost, End::Closed, "asked", None);
    assert!(matches!(late, Err(Error::Stale { .. })));
    // An owner that lives but is stuck is replaced by who saw that.
    let other = registry
        .take_over("s", claim.version, &owner("fourth"))
        .unwrap();
    let stuck = registry.finish(&claim, End::Closed, "asked", None);
    assert!(matches!(stuck, Err(Error::Stale { .. })));
    registry.finish(&other, End::Failed, "stuck", None).unwrap();
    assert_eq!(state(&registry, "s"), State::Failed);
}

/// Adds one file to an entry, however often it takes.
fn track(registry: &Registry, id: &str, file: &str) {
    loop {
        let row = registry.get(id).unwrap().unwrap();
        let mut files = row.files;
        files.push(Text::from(file));
        let change = Change {
            files: Some(files),
            ..Change::default()
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

fn all_files(row: &Row, writers: usize, each: usize) {
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

/// Another process: this test program, told what to do.
fn helper(what: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "suite::registry::is_a_helper_when_told",
            "--nocapture",
        ])
        .env("FDGUARD_TEST_REGISTRY", path)
        .env("FDGUARD_TEST_DO", what)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The lines that a helper says, apart from those of the test harness.
fn said(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).filter_map(|line| {
        let (_, said) = line.split_once("said ")?;
        Some(said.to_owned())
    })
}

/// Not a test of its own: what the other processes do.
#[test]
fn is_a_helper_when_told() {
    let (Ok(path), Ok(what)) = (
        std::env::var("FDGUARD_TEST_REGISTRY"),
        std::env::var("FDGUARD_TEST_DO"),
    ) else {
        return;
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

/// Adds, closes and updates until it is killed; says each thing when it is done.
fn write_for_ever(registry: &Registry, pid: u32) {
    let own = Identity::own().unwrap();
    let mut out = std::io::stdout();
    for number in 0.. {
        let id = format!("{pid}/{number}");
        let new = New {
            process: Some(own.clone()),
            ..session(&id)
        };
        registry.add(new).unwrap();
        writeln!(out, "said {id} running").unwrap();
        track(registry, &id, "a file");
        if number % 3 == 1 {
            let claim = registry.begin_closing(&id, &owner("helper")).unwrap();
            writeln!(out, "said {id} closing").unwrap();
            registry.finish(&claim, End::Closed, "asked", None).unwrap();
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
    let counts = registry.counts(&Filter::default()).unwrap();
    assert_eq!(counts.len(), 1);
    assert_eq!((counts[0].state, counts[0].count), (State::Running, 41));
}

#[test]
fn r51_eight_processes_make_one_registry_together() {
    let place = Place::new();
    let children: Vec<_> = (0..8).map(|_| helper("write", &place.path)).collect();
    let mut all = Vec::new();
    for mut child in children {
        let mut lines = said(&mut child);
        // Its first entry is in; from here on it is not needed.
        let first = lines.next().unwrap();
        all.push(first.split(' ').next().unwrap().to_owned());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let registry = place.open();
    for id in all {
        assert!(registry.get(&id).unwrap().is_some(), "{id}");
    }
    let names = fs::read_dir(place.folder.path()).unwrap();
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
                now >= State::of(word).unwrap(),
                "round {round}: {line}, but {now:?}"
            );
        }
        let open = registry.list(&Filter::open()).unwrap().len();
        let dry = registry
            .reconcile(Timestamp::now(), &Identity::alive, true)
            .unwrap();
        assert_eq!(dry.changed.len(), open);
        assert_eq!(
            registry.list(&Filter::open()).unwrap().len(),
            open,
            "a dry run"
        );
        let report = registry
            .reconcile(Timestamp::now(), &Identity::alive, false)
            .unwrap();
        assert_eq!(report.changed, dry.changed);
        for changed in &report.changed {
            let expected = match changed.from {
                State::Closing => "closing_owner_gone",
                _ => "process_gone",
            };
            assert_eq!(changed.reason, expected);
            assert!(changed.id.starts_with(&format!("{pid}/")));
        }
        assert!(registry.list(&Filter::open()).unwrap().is_empty());
    }
    assert_eq!(super::integrity(&place.path), "ok");
}

#[test]
fn r51_a_comparison_says_why_and_leaves_what_lives() {
    let place = Place::new();
    let registry = place.open();
    let own = Identity::own().unwrap();
    let of = |id: &str, process: Option<&Identity>, host: Option<&Identity>| New {
        process: process.cloned(),
        host: host.cloned(),
        ..session(id)
    };
    registry.add(of("lives", Some(&own), Some(&own))).unwrap();
    registry
        .add(of("orphan", Some(&own), Some(&nobody())))
        .unwrap();
    registry.add(of("hostless", None, Some(&nobody()))).unwrap();
    registry
        .add(of("ended", Some(&nobody()), Some(&own)))
        .unwrap();
    registry.add(of("bare", None, None)).unwrap();
    registry
        .add(of("abandoned", Some(&own), Some(&own)))
        .unwrap();
    let crashed = Owner {
        name: "crashed".to_owned(),
        process: nobody(),
    };
    registry.begin_closing("abandoned", &crashed).unwrap();
    let report = registry
        .reconcile(Timestamp::now(), &Identity::alive, false)
        .unwrap();
    let changed: Vec<_> = report
        .changed
        .iter()
        .map(|one| (&*one.id, one.reason))
        .collect();
    assert_eq!(
        changed,
        [("hostless", "host_gone"), ("ended", "process_gone")]
    );
    let left: Vec<_> = report
        .left
        .iter()
        .map(|one| (&*one.id, one.reason))
        .collect();
    assert_eq!(left, [("orphan", "orphaned"), ("abandoned", "abandoned")]);
    let unknown: Vec<_> = report
        .unknown
        .iter()
        .map(|one| (&*one.id, one.reason))
        .collect();
    assert_eq!(unknown, [("bare", "nothing_to_judge_by")]);
    assert_eq!((report.unchanged, report.changed_meanwhile), (1, 0));
    let row = registry.get("ended").unwrap().unwrap();
    assert_eq!(
        (row.state, row.reason.as_deref()),
        (State::Failed, Some("process_gone"))
    );
    assert!(row.ended_at.is_some());
}

#[test]
fn r51_what_somebody_changes_between_the_look_and_the_change_is_left_to_them() {
    let place = Place::new();
    let registry = place.open();
    let process = Some(nobody());
    registry
        .add(New {
            process,
            ..session("raced")
        })
        .unwrap();
    let racing = registry.clone();
    let look = move |identity: &Identity| {
        if *identity == nobody()
            && let Some(row) = racing.get("raced").unwrap()
            && row.version == 1
        {
            racing.update("raced", 1, Change::default()).unwrap();
        }
        identity.alive()
    };
    let report = registry.reconcile(Timestamp::now(), &look, false).unwrap();
    assert_eq!((report.changed.len(), report.changed_meanwhile), (0, 1));
    assert_eq!(state(&registry, "raced"), State::Running);
}

#[test]
fn r51_counts_are_asked_for_and_old_ends_are_forgotten() {
    let place = Place::new();
    let registry = place.open();
    for number in 0..10 {
        let id = format!("s{number}");
        let client = Some(format!("client {}", number % 2));
        registry
            .add(New {
                client,
                ..session(&id)
            })
            .unwrap();
        if number < 4 {
            let claim = registry.begin_closing(&id, &owner("test")).unwrap();
            registry.finish(&claim, End::Closed, "asked", None).unwrap();
        }
    }
    registry.add(New::now("h", Kind::Host)).unwrap();
    let count = |filter: &Filter| {
        let counts = registry.counts(filter).unwrap();
        let counts: Vec<_> = counts
            .iter()
            .map(|one| (one.kind, one.state, one.count))
            .collect();
        counts
    };
    let all = [
        (Kind::Host, State::Running, 1),
        (Kind::Session, State::Closed, 4),
        (Kind::Session, State::Running, 6),
    ];
    assert_eq!(count(&Filter::default()), all);
    let of_one = Filter {
        client: Some("client 0".to_owned()),
        kind: Some(Kind::Session),
        states: vec![State::Running],
    };
    assert_eq!(count(&of_one), [(Kind::Session, State::Running, 3)]);
    let ids: Vec<_> = registry
        .list(&of_one)
        .unwrap()
        .into_iter()
        .map(|row| row.id)
        .collect();
    assert_eq!(ids, ["s4", "s6", "s8"]);
    assert_eq!(registry.forget(Timestamp::UNIX_EPOCH).unwrap(), 0);
    let later = Timestamp::now() + jiff::SignedDuration::from_secs(1);
    assert_eq!(registry.forget(later).unwrap(), 4);
    assert_eq!(registry.list(&Filter::default()).unwrap().len(), 7);
}

#[test]
fn r44_a_registry_that_is_replaced_or_deleted_while_open_takes_nothing() {
    for what in ["deleted", "replaced"] {
        for suffix in ["", "-wal", "-shm"] {
            let place = Place::new();
            let registry = place.open();
            registry.add(session("before")).unwrap();
            let file = place.beside(suffix);
            fs::rename(&file, place.beside(".aside")).unwrap();
            if what == "replaced" {
                fs::copy(place.beside(".aside"), &file).unwrap();
            }
            let refused = registry.add(session("after")).unwrap_err();
            assert!(
                matches!(&refused, Error::Replaced { path, .. } if *path == file.canonicalize().unwrap_or(file.clone())),
                "{refused}"
            );
            let words = refused.to_string();
            assert!(words.contains(&format!("was {what}")), "{words}");
            assert!(registry.get("before").is_err());
            // The same file again: it goes on.
            fs::rename(place.beside(".aside"), &file).unwrap();
            registry.add(session("again")).unwrap();
            assert_eq!(registry.list(&Filter::default()).unwrap().len(), 2);
        }
    }
}

#[test]
fn r44_one_that_was_replaced_does_not_take_the_log_of_its_successor_away() {
    let place = Place::new();
    let old = place.open();
    old.add(session("old")).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(place.beside(suffix)).unwrap();
    }
    let new = place.open();
    new.add(session("new")).unwrap();
    drop(old);
    new.add(session("newer")).unwrap();
    drop(new);
    let ids: Vec<_> = place.open().list(&Filter::default()).unwrap();
    assert_eq!(
        ids.iter().map(|row| &*row.id).collect::<Vec<_>>(),
        ["new", "newer"]
    );
}

#[test]
fn r45_damage_is_refused_with_the_way_on_and_nothing_is_made_anew() {
    type Damage = (&'static str, fn(&Path));
    let damages: [Damage; 4] = [
        ("empty", |path| fs::write(path, "").unwrap()),
        ("tls", |path| super::write_at(path, 5, &super::alert())),
        ("text", |path| {
            fs::write(path, "not a database at all\n".repeat(300)).unwrap()
        }),
        ("page", |path| super::write_at(path, 4096, &[0x55; 4096])),
    ];
    for (name, damage) in damages {
        let place = Place::new();
        place.open().add(session("s")).unwrap();
        damage(&place.path);
        let before = fs::read(&place.path).unwrap();
        let refused = place.refused();
        assert!(
            refused.contains("fdguard inspect")
                || name == "text" && refused.contains("no registry"),
            "{name}: {refused}"
        );
        assert_eq!(refused.lines().count(), 1, "{refused}");
        assert_eq!(fs::read(&place.path).unwrap(), before, "{name}");
    }
    let place = Place::new();
    fs::write(place.beside("-wal"), "of a registry that is gone").unwrap();
    assert!(place.refused().contains("its log is there"));
    assert!(!place.path.exists());
}

#[test]
fn r45_other_programs_databases_and_later_versions_are_left_alone() {
    let made = super::Made::new("wal");
    let before = made.bytes();
    let refused = Registry::open(&made.path).unwrap_err().to_string();
    assert!(refused.contains("another program"), "{refused}");
    assert_eq!(made.bytes(), before);
    let place = Place::new();
    drop(place.open());
    let later = Connection::open(&place.path).unwrap();
    later.pragma_update(None, "user_version", 2).unwrap();
    drop(later);
    let refused = place.refused();
    assert!(
        refused.contains("has version 2") && refused.contains("newer fdguard"),
        "{refused}"
    );
}

#[test]
fn two_handles_of_a_process_are_one_and_the_last_leaves_nothing() {
    let place = Place::new();
    let (before, base) = (descriptors(), threads());
    for _ in 0..20 {
        let first = place.open();
        let second = Registry::open(&place.folder.path().join(".").join("registry.db")).unwrap();
        assert_eq!(threads(), base + 1, "one vault");
        assert_eq!(descriptors(), before, "nothing in the shared table");
        drop(first);
        second.counts(&Filter::default()).unwrap();
        drop(second);
        assert!(settles(|| threads() == base));
    }
    assert_eq!(descriptors(), before);
    assert!(!place.beside("-wal").exists());
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
    assert_eq!(registry.list(&Filter::default()).unwrap().len(), 40);
}

/// One of the steps that the registry knows, as the pure rules know it and as a call.
fn both(registry: &Registry, standing: &Standing, what: u8, off: i64, lives: bool) -> (Step, bool) {
    let version = standing.version.saturating_add_signed(off);
    let owner = owner("somebody");
    let present = if lives { Alive::Alive } else { Alive::Gone };
    let claim = Claim {
        id: "s".to_owned(),
        version,
        owner: owner.clone(),
        took_over_from: None,
    };
    let end = if lives { End::Closed } else { End::Failed };
    match what {
        0 => {
            let done = registry.update("s", version, Change::default()).is_ok();
            (Step::Update { version }, done)
        }
        1 => {
            let claimed = registry.begin_closing_with("s", &owner, &|_| present);
            (Step::BeginClosing { owner, present }, claimed.is_ok())
        }
        2 => {
            let taken = registry.take_over("s", version, &owner).is_ok();
            (Step::TakeOver { version, owner }, taken)
        }
        _ => {
            let done = registry.finish(&claim, end, "asked", None).is_ok();
            (Step::Finish { version, end }, done)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn the_file_follows_the_rules(
        steps in prop::collection::vec((0u8..4, -1i64..=1, any::<bool>()), 0..15)
    ) {
        let place = Place::new();
        let registry = place.open();
        let mut standing = registry.add(session("s")).unwrap().standing();
        for (what, off, lives) in steps {
            let (step, done) = both(&registry, &standing, what, off, lives);
            let expected = standing.after(&step);
            prop_assert_eq!(expected.is_ok(), done, "{:?}", step);
            standing = expected.unwrap_or(standing);
            let row = registry.get("s").unwrap().unwrap();
            prop_assert_eq!(row.standing(), standing.clone());
        }
    }
}

#[test]
fn r46_a_registry_that_stays_busy_names_the_holder() {
    let place = Place::new();
    let registry = place.open();
    let script = "import sqlite3,sys\nc=sqlite3.connect(sys.argv[1],isolation_level=None)\nc.execute('BEGIN IMMEDIATE')\nprint('ready',flush=True)\nsys.stdin.read()";
    let child = testkit::Scripted::python(script, &place.path);
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
