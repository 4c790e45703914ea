//! Stories of findings.

use fdguard_core::Class;
use fdguard_core::finding::{ClearedNote, Finding, WallEta};
use fdguard_core::lint::Severity;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::{FindingBook, FindingChange, FindingPace, FindingState, KeptFinding};
use crate::service::{ServiceKey, ServiceKind};
use crate::store::Attachments;

struct Story {
    book: FindingBook,
    now: f64,
}

fn web() -> ServiceKey {
    ServiceKey::new(ServiceKind::Unit, "web.service")
}

fn leak(severity: Severity, count: u64) -> Finding {
    let mut finding = Finding::new("leak", 7, "web".into(), severity);
    finding.class = Some(Class::Pipe);
    finding.count = Some(count);
    finding
}

impl Story {
    fn new() -> Self {
        Self {
            book: FindingBook::new(FindingPace::default(), 0),
            now: 0.0,
        }
    }

    fn at(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs_f64(self.now)
    }

    fn see(&mut self, finding: &Finding) -> Option<FindingChange> {
        self.now += 5.0;
        let seen = self.book.see(&web(), finding, self.now, self.at());
        seen.map(|(change, _)| change)
    }

    /// This many seconds without a sighting, in steps.
    fn quiet(&mut self, seconds: u32) -> Vec<FindingChange> {
        let mut changes = Vec::new();
        for _ in 0..seconds / 5 {
            self.now += 5.0;
            let resolved = self.book.advance(self.now, self.at());
            changes.extend(resolved.into_iter().map(|(change, _)| change));
        }
        changes
    }
}

#[test]
fn a_finding_opens_at_its_second_sight_is_updated_and_resolves() {
    let mut story = Story::new();
    assert_eq!(story.see(&leak(Severity::Warning, 10)), None);
    assert_eq!(
        story.see(&leak(Severity::Warning, 11)),
        Some(FindingChange::Opened)
    );
    assert_eq!(story.see(&leak(Severity::Warning, 12)), None);
    assert_eq!(
        story.see(&leak(Severity::Warning, 40)),
        Some(FindingChange::Updated)
    );
    assert_eq!(
        story.see(&leak(Severity::Critical, 41)),
        Some(FindingChange::Updated)
    );
    assert_eq!(story.see(&leak(Severity::Critical, 42)), None);
    assert!(story.quiet(60).is_empty());
    assert_eq!(story.quiet(120), [FindingChange::Resolved]);
    assert!(story.quiet(120).is_empty(), "once");
    let records = story.book.records();
    assert_eq!(
        (records.len(), records[0].state),
        (1, FindingState::Resolved)
    );
}

#[test]
fn a_critical_one_does_not_wait_and_information_is_not_kept() {
    let mut story = Story::new();
    assert_eq!(story.see(&leak(Severity::Info, 10)), None);
    assert_eq!(story.see(&leak(Severity::Info, 10)), None);
    assert!(story.book.records().is_empty());
    assert_eq!(
        story.see(&leak(Severity::Critical, 10)),
        Some(FindingChange::Opened)
    );
}

#[test]
fn growth_that_may_still_stop_is_reported_only_when_it_lasts() {
    let mut growth = leak(Severity::Warning, 10);
    growth.rule = "growth".to_owned();
    let mut story = Story::new();
    for _ in 0..100 {
        assert_eq!(story.see(&growth), None);
    }
    story.quiet(600);
    assert_eq!(story.see(&growth), None, "it had stopped");
    let opened = (0..130).filter_map(|_| story.see(&growth)).next();
    assert_eq!(opened, Some(FindingChange::Opened));
}

/// 30 a minute, for as long as this.
fn rise(seconds: i64, left: f64) -> Finding {
    let mut rise = leak(Severity::Critical, 1000);
    rise.grown = Some(seconds / 2);
    rise.rate_per_min = Some(30.0);
    rise.walls = vec![WallEta {
        name: "soft-limit".to_owned(),
        eta_seconds: left,
        soonest_seconds: left,
        latest_seconds: Some(left),
    }];
    rise
}

#[test]
fn a_rise_opens_when_it_has_lasted_another_part_of_its_length() {
    let mut story = Story::new();
    // Another 40 of the 200 seconds, at one sight in five seconds.
    for _ in 0..8 {
        assert_eq!(story.see(&rise(200, 9000.0)), None);
    }
    assert!(story.book.records().is_empty(), "not shown yet");
    assert_eq!(story.see(&rise(200, 9000.0)), Some(FindingChange::Opened));
}

#[test]
fn a_rise_that_stops_as_soon_as_it_is_seen_never_opens() {
    let mut story = Story::new();
    for _ in 0..10 {
        for _ in 0..7 {
            assert_eq!(story.see(&rise(200, 9000.0)), None);
        }
        for _ in 0..2 {
            story.now += 5.0;
            story.book.settle(&web(), 7, story.now);
        }
    }
}

#[test]
fn near_a_limit_a_rise_does_not_wait() {
    let mut story = Story::new();
    assert_eq!(story.see(&rise(200, 20.0)), None);
    assert_eq!(story.see(&rise(200, 15.0)), Some(FindingChange::Opened));
    let mut story = Story::new();
    let full = story.see(&rise(200, 0.0));
    assert_eq!(full, Some(FindingChange::Opened), "at the limit");
}

#[test]
fn a_rise_that_is_watched_but_not_judged_in_between_is_the_same() {
    let mut story = Story::new();
    assert_eq!(story.see(&rise(200, 9000.0)), None);
    for _ in 0..20 {
        story.now += 5.0;
        story.book.keep(&web(), 7, story.now);
    }
    assert_eq!(story.see(&rise(200, 9000.0)), Some(FindingChange::Opened));
}

#[test]
fn one_that_flaps_is_the_same_and_stays_open_longer_each_time() {
    let mut story = Story::new();
    story.see(&leak(Severity::Critical, 10));
    let id = story.book.records()[0].id;
    assert_eq!(story.quiet(130), [FindingChange::Resolved]);
    assert_eq!(
        story.see(&leak(Severity::Critical, 10)),
        Some(FindingChange::Reopened)
    );
    assert!(story.quiet(200).is_empty(), "twice as long");
    assert_eq!(story.quiet(60), [FindingChange::Resolved]);
    assert_eq!(
        story.see(&leak(Severity::Critical, 10)),
        Some(FindingChange::Reopened)
    );
    assert!(story.quiet(400).is_empty(), "four times as long");
    let records = story.book.records();
    assert_eq!((records[0].id, records[0].flaps), (id, 2));
}

#[test]
fn a_restart_of_the_service_continues_its_finding() {
    let mut story = Story::new();
    story.see(&leak(Severity::Critical, 10));
    let mut other = leak(Severity::Critical, 3);
    other.pid = 99;
    assert_eq!(
        story.see(&other),
        None,
        "another process of the same service"
    );
    assert_eq!(story.book.records().len(), 1);
    assert_eq!(story.book.records()[0].finding.pid, 99);
}

#[test]
fn what_is_watched_but_not_judged_anew_stays_open() {
    let mut story = Story::new();
    story.see(&leak(Severity::Critical, 10));
    for _ in 0..100 {
        story.now += 5.0;
        story.book.keep(&web(), 7, story.now);
        assert!(story.book.advance(story.now, story.at()).is_empty());
    }
    assert_eq!(story.quiet(130), [FindingChange::Resolved]);
}

#[test]
fn an_accepted_finding_is_quiet_until_its_date() {
    let mut story = Story::new();
    story.see(&leak(Severity::Critical, 10));
    let id = story.book.records()[0].id;
    let until = story.at() + SignedDuration::from_secs(100);
    assert!(story.book.accept(id, "known pool", Some(until)).is_some());
    assert!(story.book.accept(id + 1, "nobody", None).is_none());
    assert_eq!(story.see(&leak(Severity::Critical, 50)), None);
    assert_eq!(story.book.records()[0].state, FindingState::Suppressed);
    assert_eq!(
        story.book.records()[0].reason.as_deref(),
        Some("known pool")
    );
    assert!(
        story.quiet(200).is_empty(),
        "an accepted one does not resolve"
    );
    assert_eq!(
        story.see(&leak(Severity::Critical, 50)),
        Some(FindingChange::Opened)
    );
}

#[test]
fn a_suppression_of_the_file_closes_what_was_open() {
    let mut story = Story::new();
    story.see(&leak(Severity::Critical, 10));
    assert_eq!(
        story.see(&cleared_leak(11)),
        Some(FindingChange::Suppressed)
    );
    assert_eq!(story.see(&cleared_leak(11)), None);
}

/// As a rule reports what the file accepts.
fn cleared_leak(count: u64) -> Finding {
    let mut cleared = leak(Severity::Info, count);
    cleared.cleared = Some(ClearedNote {
        reason: "pool".to_owned(),
        date: "2026-01-01".to_owned(),
    });
    cleared
}

#[test]
fn what_the_file_accepts_is_kept_with_its_reason_and_reported_to_nobody() {
    let mut story = Story::new();
    assert_eq!(story.see(&cleared_leak(11)), None);
    let [record] = &story.book.records()[..] else {
        panic!("{:?}", story.book.records());
    };
    assert_eq!(record.state, FindingState::Suppressed);
    assert_eq!(record.reason.as_deref(), Some("pool"));
    // More than the entry allows is a new finding.
    assert_eq!(
        story.see(&leak(Severity::Warning, 50)),
        Some(FindingChange::Opened)
    );
    // Information is not kept, accepted or not.
    let mut story = Story::new();
    let mut plateau = cleared_leak(11);
    plateau.rule = "plateau".to_owned();
    story.see(&plateau);
    story.see(&leak(Severity::Info, 11));
    assert!(story.book.records().is_empty());
}

/// A new start with what the one before left, `away` seconds later.
fn started_again(before: &Story, away: f64) -> Story {
    let mut story = Story::new();
    let at = before.at() + SignedDuration::from_secs_f64(away);
    for record in before.book.records() {
        let kept = KeptFinding {
            id: record.id,
            key: record.key.clone(),
            state: record.state,
            opened_at: record.opened_at,
            told_at: record.resolved_at.unwrap_or(record.seen_at),
            flaps: record.flaps,
            finding: record.finding.clone(),
            attached: Attachments::default(),
        };
        story.book.restore_finding(kept, at);
    }
    story
}

#[test]
fn after_a_new_start_an_open_finding_is_the_same_and_has_time() {
    let mut before = Story::new();
    before.see(&leak(Severity::Critical, 100));
    let mut story = started_again(&before, 86_400.0);
    assert!(story.quiet(590).is_empty(), "a new watch needs time");
    assert_eq!(story.see(&leak(Severity::Critical, 110)), None);
    let records = story.book.records();
    assert_eq!((records[0].id, records[0].opened_at), (1, before.at()));
    assert_eq!(story.quiet(130), [FindingChange::Resolved]);
    let mut unseen = started_again(&before, 1.0);
    assert_eq!(unseen.quiet(700), [FindingChange::Resolved]);
    let mut grown = started_again(&before, 1.0);
    let change = grown.see(&leak(Severity::Critical, 200));
    assert_eq!(change, Some(FindingChange::Updated));
    // A number is never given twice.
    let mut other = leak(Severity::Critical, 1);
    other.rule = "limit".to_owned();
    grown.see(&other);
    assert_eq!(grown.book.records()[1].id, 2);
}

#[test]
fn after_a_new_start_what_is_over_may_return_within_an_hour() {
    let mut before = Story::new();
    before.see(&leak(Severity::Critical, 100));
    before.quiet(200);
    let mut soon = started_again(&before, 1000.0);
    let change = soon.see(&leak(Severity::Critical, 100));
    assert_eq!(change, Some(FindingChange::Reopened));
    assert_eq!(soon.book.records()[0].id, 1);
    let mut late = started_again(&before, 10_000.0);
    let change = late.see(&leak(Severity::Critical, 100));
    assert_eq!(change, Some(FindingChange::Opened));
    let forgotten = started_again(&before, 100_000.0);
    assert!(forgotten.book.records().is_empty());
}

#[test]
fn more_findings_than_fit_are_counted() {
    let mut story = Story::new();
    for target in 0..3000 {
        let mut finding = leak(Severity::Critical, 10);
        finding.target = Some(format!("/srv/{target}").into());
        story.see(&finding);
    }
    assert_eq!(story.book.records().len(), super::MOST);
    assert_eq!(story.book.dropped(), 1000);
    story.quiet(130);
    let mut finding = leak(Severity::Critical, 10);
    finding.target = Some("/srv/new".into());
    assert_eq!(
        story.see(&finding),
        Some(FindingChange::Opened),
        "a resolved one gave way"
    );
}

proptest! {
    /// Opens and resolves alternate, whatever happens.
    #[test]
    fn nothing_resolves_that_did_not_open(steps in prop::collection::vec(0_u32..4, 1..80)) {
        let mut story = Story::new();
        let mut is_open = false;
        for step in steps {
            let changes = match step {
                0 => story.see(&leak(Severity::Warning, 10)).into_iter().collect(),
                1 => story.see(&leak(Severity::Critical, 90)).into_iter().collect(),
                2 => story.quiet(30),
                _ => story.quiet(400),
            };
            for change in changes {
                match change {
                    FindingChange::Opened | FindingChange::Reopened => {
                        prop_assert!(!is_open);
                        is_open = true;
                    }
                    FindingChange::Updated => prop_assert!(is_open),
                    FindingChange::Resolved | FindingChange::Suppressed => {
                        prop_assert!(is_open);
                        is_open = false;
                    }
                }
            }
        }
    }
}
