//! Allowed transitions, and processes that are gone.

use fdguard_core::Text;
use fdguard_files::Registry;
use fdguard_files::registry::state::{RowStatus, RowTransition};
use fdguard_files::registry::{
    Claim, Error, Kind, NewRow, Owner, RowChange, RowEnd, RowFilter, RowState,
};
use fdguard_proc::ProcessId;
use fdguard_proc::process::Liveness;
use jiff::Timestamp;
use proptest::prelude::{ProptestConfig, any, prop, prop_assert_eq, proptest};
use rusqlite::Connection;

use super::{Place, nobody, owner, session, state};

#[test]
fn an_entry_is_read_as_it_was_written() {
    let place = Place::new();
    let registry = place.open();
    let own = ProcessId::current().unwrap();
    let new = NewRow {
        client: Some("agent 7".to_owned()),
        process: Some(own.clone()),
        host: Some(own.clone()),
        files: vec![Text::from("/var/log/a.jsonl"), Text::from(&b"\xff\xfe"[..])],
        ..session("s1")
    };
    let added = registry.add(new.clone()).unwrap();
    assert_eq!(registry.get("s1").unwrap(), Some(added.clone()));
    assert_eq!((added.version, added.state), (1, RowState::Running));
    assert_eq!((&added.files, &added.process), (&new.files, &Some(own)));
    assert!(matches!(registry.add(new), Err(Error::Exists { id }) if id == "s1"));
    let claim = registry.begin_closing("s1", &owner("test")).unwrap();
    let receipt = serde_json::json!({"survivors": 0});
    let ended = registry
        .finish(&claim, RowEnd::Closed, "asked", Some(receipt.clone()))
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
    let change = RowChange {
        client: Some("first".to_owned()),
        ..RowChange::default()
    };
    registry.update("s", seen.version, change).unwrap();
    let late = RowChange {
        client: Some("second".to_owned()),
        ..RowChange::default()
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
    let missing = registry.update("nobody", 1, RowChange::default());
    assert!(matches!(missing, Err(Error::Missing { .. })));
}

#[test]
fn r53_what_has_ended_is_never_changed_not_even_by_other_programs() {
    let place = Place::new();
    let registry = place.open();
    registry.add(session("s")).unwrap();
    let claim = registry.begin_closing("s", &owner("test")).unwrap();
    let ended = registry
        .finish(&claim, RowEnd::Closed, "asked", None)
        .unwrap();
    let is_ended = |result: Result<(), Error>| matches!(result, Err(Error::Ended { .. }));
    assert!(is_ended(
        registry
            .finish(&claim, RowEnd::Failed, "again", None)
            .map(drop)
    ));
    assert!(is_ended(
        registry.begin_closing("s", &owner("late")).map(drop)
    ));
    assert!(is_ended(
        registry
            .update("s", ended.version, RowChange::default())
            .map(drop)
    ));
    assert!(is_ended(
        registry
            .take_over("s", ended.version, &owner("late"))
            .map(drop)
    ));
    let report = registry
        .reconcile(Timestamp::now(), &|_| Liveness::Gone, false)
        .unwrap();
    assert!(report.changed.is_empty());
    assert_eq!(registry.get("s").unwrap(), Some(ended));
    drop(registry);
    let stranger = Connection::open(&place.path).unwrap();
    let refused = stranger.execute("UPDATE entries SET state = 'running'", []);
    assert!(refused.unwrap_err().to_string().contains("never changed"));
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
    // A process that cannot be examined may be alive.
    let unknown = registry.begin_closing_with("s", &owner("next"), &|_| Liveness::Unknown);
    assert!(matches!(unknown, Err(Error::AlreadyClosing { .. })));
    let claim = registry.begin_closing("s", &owner("next")).unwrap();
    assert_eq!(claim.took_over_from, Some(dead));
    let again = registry.begin_closing("s", &owner("third"));
    assert!(matches!(again, Err(Error::AlreadyClosing { owner, .. }) if owner.name == "next"));
    // The first closer comes back after all: it no longer has the right.
    let late = registry.finish(&lost, RowEnd::Closed, "asked", None);
    assert!(matches!(late, Err(Error::Stale { .. })));
    // An owner that is alive but stuck is replaced by the process that noticed.
    let other = registry
        .take_over("s", claim.version, &owner("fourth"))
        .unwrap();
    let stuck = registry.finish(&claim, RowEnd::Closed, "asked", None);
    assert!(matches!(stuck, Err(Error::Stale { .. })));
    registry
        .finish(&other, RowEnd::Failed, "stuck", None)
        .unwrap();
    assert_eq!(state(&registry, "s"), RowState::Failed);
}

#[test]
fn r51_a_comparison_says_why_and_leaves_what_lives() {
    let place = Place::new();
    let registry = place.open();
    let own = ProcessId::current().unwrap();
    let of = |id: &str, process: Option<&ProcessId>, host: Option<&ProcessId>| NewRow {
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
        .reconcile(Timestamp::now(), &ProcessId::liveness, false)
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
        (RowState::Failed, Some("process_gone"))
    );
    assert!(row.ended_at.is_some());
}

#[test]
fn r51_what_somebody_changes_between_the_look_and_the_change_is_left_to_them() {
    let place = Place::new();
    let registry = place.open();
    let process = Some(nobody());
    registry
        .add(NewRow {
            process,
            ..session("raced")
        })
        .unwrap();
    let racing = registry.clone();
    let look = move |identity: &ProcessId| {
        if *identity == nobody()
            && let Some(row) = racing.get("raced").unwrap()
            && row.version == 1
        {
            racing.update("raced", 1, RowChange::default()).unwrap();
        }
        identity.liveness()
    };
    let report = registry.reconcile(Timestamp::now(), &look, false).unwrap();
    assert_eq!((report.changed.len(), report.changed_meanwhile), (0, 1));
    assert_eq!(state(&registry, "raced"), RowState::Running);
}

#[test]
fn r51_counts_are_asked_for_and_old_ends_are_forgotten() {
    let place = Place::new();
    let registry = place.open();
    for number in 0..10 {
        let id = format!("s{number}");
        let client = Some(format!("client {}", number % 2));
        registry
            .add(NewRow {
                client,
                ..session(&id)
            })
            .unwrap();
        if number < 4 {
            let claim = registry.begin_closing(&id, &owner("test")).unwrap();
            registry
                .finish(&claim, RowEnd::Closed, "asked", None)
                .unwrap();
        }
    }
    registry.add(NewRow::now("h", Kind::Host)).unwrap();
    let count = |filter: &RowFilter| {
        let counts = registry.counts(filter).unwrap();
        let counts: Vec<_> = counts
            .iter()
            .map(|one| (one.kind, one.state, one.count))
            .collect();
        counts
    };
    let all = [
        (Kind::Host, RowState::Running, 1),
        (Kind::Session, RowState::Closed, 4),
        (Kind::Session, RowState::Running, 6),
    ];
    assert_eq!(count(&RowFilter::default()), all);
    let of_one = RowFilter {
        client: Some("client 0".to_owned()),
        kind: Some(Kind::Session),
        states: vec![RowState::Running],
    };
    assert_eq!(count(&of_one), [(Kind::Session, RowState::Running, 3)]);
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
    assert_eq!(registry.list(&RowFilter::default()).unwrap().len(), 7);
}

/// One transition, as the pure rules have it and as a call.
fn both(
    registry: &Registry,
    standing: &RowStatus,
    what: u8,
    off: i64,
    lives: bool,
) -> (RowTransition, bool) {
    let version = standing.version.saturating_add_signed(off);
    let owner = owner("somebody");
    let present = if lives {
        Liveness::Alive
    } else {
        Liveness::Gone
    };
    let claim = Claim {
        id: "s".to_owned(),
        version,
        owner: owner.clone(),
        took_over_from: None,
    };
    let end = if lives {
        RowEnd::Closed
    } else {
        RowEnd::Failed
    };
    match what {
        0 => {
            let done = registry.update("s", version, RowChange::default()).is_ok();
            (RowTransition::Update { version }, done)
        }
        1 => {
            let claimed = registry.begin_closing_with("s", &owner, &|_| present);
            (
                RowTransition::BeginClosing { owner, present },
                claimed.is_ok(),
            )
        }
        2 => {
            let taken = registry.take_over("s", version, &owner).is_ok();
            (RowTransition::TakeOver { version, owner }, taken)
        }
        _ => {
            let done = registry.finish(&claim, end, "asked", None).is_ok();
            (RowTransition::Finish { version, end }, done)
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
