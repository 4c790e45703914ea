//! Identities and their cohorts, ages, groups, and what stays bounded.

use super::{BUCKETS, Look, LookChange, OLD, RINGS, Sighting, Timeline, TrackGroup, YOUNG};
use crate::{Class, Fd, TcpState};

const ESTABLISHED: Class = Class::Tcp(TcpState::Established);
const CLOSE_WAIT: Class = Class::Tcp(TcpState::CloseWait);

fn seen(fd: Fd, class: Class, target: &str) -> Sighting {
    Sighting {
        fd,
        class,
        target: target.into(),
        group: None,
    }
}

fn file(fd: Fd) -> Sighting {
    seen(fd, Class::Regular, "/srv/a")
}

/// A process that is looked at once a second.
#[derive(Default)]
struct Watch {
    timeline: Timeline,
    at: f64,
}

impl Watch {
    /// A watch whose first look found these.
    fn of(found: Vec<Sighting>) -> Self {
        let mut watch = Self::default();
        watch.look(found, &[], Vec::new());
        watch
    }

    fn look(&mut self, opened: Vec<Sighting>, closed: &[Fd], changed: Vec<Sighting>) {
        self.at += 1.0;
        let change = LookChange {
            opened,
            closed: closed.to_vec(),
            changed,
        };
        self.timeline.observe(&Look {
            at: self.at,
            count: Some(0),
            table: Some(change),
            ..Look::default()
        });
    }

    fn open(&mut self, opened: Vec<Sighting>) {
        self.look(opened, &[], Vec::new());
    }

    fn change(&mut self, changed: Sighting) {
        self.look(Vec::new(), &[], vec![changed]);
    }

    /// Looks without changes.
    fn idle(&mut self, looks: u64) {
        for _ in 0..looks {
            self.at += 1.0;
            self.timeline.observe(&Look {
                at: self.at,
                count: Some(0),
                ..Look::default()
            });
        }
    }

    fn group(&self, target: &str) -> &TrackGroup {
        let is_it = |group: &&TrackGroup| {
            group
                .key
                .target
                .as_ref()
                .is_some_and(|it| *it == target.into())
        };
        let mut groups = self.timeline.groups().map(|(_, group)| group);
        groups.find(is_it).expect("a group of this target")
    }

    fn family(&self, class: &Class) -> &TrackGroup {
        let mut groups = self.timeline.groups().map(|(_, group)| group);
        groups
            .find(|group| group.key.target.is_none() && group.key.family == class.family())
            .expect("a group of this family")
    }
}

/// All, young and old ones of the last bucket of the finest ring.
fn ages(group: &TrackGroup) -> [u32; 3] {
    let ring = group.track.ring(0);
    [&ring.all, &ring.young, &ring.old].map(|series| series.padded(1)[0].max)
}

#[test]
fn a_number_that_another_file_got_is_closed_and_opened() {
    let mut watch = Watch::of(Vec::new());
    watch.open(vec![file(3)]);
    watch.idle(YOUNG);
    assert_eq!(ages(watch.group("/srv/a")), [1, 1, 0]);
    watch.look(vec![seen(3, Class::Regular, "/srv/b")], &[3], Vec::new());
    assert_eq!(ages(watch.group("/srv/a")), [0, 0, 0]);
    assert_eq!(watch.group("/srv/a").track.closed(), 1);
    assert_eq!(ages(watch.group("/srv/b")), [1, 0, 0]);
    let (_, held) = watch.timeline.live().iter().next().expect("one");
    assert_eq!(held.since, Some(watch.at));
    // The new descriptor does not inherit the age, however the reuse was reported.
    watch.idle(YOUNG - 1);
    assert_eq!(ages(watch.group("/srv/b")), [1, 0, 0]);
    watch.idle(1);
    assert_eq!(ages(watch.group("/srv/b")), [1, 1, 0]);
}

#[test]
fn a_number_that_is_opened_twice_is_a_new_lifetime() {
    let mut watch = Watch::of(vec![file(3)]);
    watch.open(vec![file(3)]);
    assert_eq!(watch.timeline.live().len(), 1);
    assert_eq!(watch.group("/srv/a").track.count(), 1);
    assert_eq!(watch.group("/srv/a").track.closed(), 1);
}

#[test]
fn a_connection_that_its_peer_closed_stays_in_its_cohort() {
    let mut watch = Watch::of(Vec::new());
    watch.open(vec![seen(3, ESTABLISHED, "*->10.0.0.7:443")]);
    watch.idle(YOUNG);
    watch.change(seen(3, CLOSE_WAIT, "*->10.0.0.7:443"));
    let family = watch.family(&ESTABLISHED);
    assert_eq!((ages(family), family.track.closed()), ([1, 1, 0], 0));
    assert_eq!(ages(watch.group("*->10.0.0.7:443")), [1, 1, 0]);
    assert_eq!(watch.timeline.count_of(|class, _| *class == CLOSE_WAIT), 1);
    let (_, held) = watch.timeline.live().iter().next().expect("one");
    assert_eq!(held.since, Some(2.0));
}

#[test]
fn a_file_that_was_deleted_or_renamed_stays_in_its_cohort() {
    for changed in [
        seen(3, Class::Deleted, "/srv/a (deleted)"),
        seen(3, Class::Regular, "/srv/renamed"),
    ] {
        let mut watch = Watch::of(Vec::new());
        watch.open(vec![file(3)]);
        watch.idle(OLD);
        watch.change(changed.clone());
        let group = watch.group("/srv/a");
        assert_eq!((ages(group), group.track.closed()), ([1, 1, 1], 0));
        let (_, held) = watch.timeline.live().iter().next().expect("one");
        assert_eq!(held.target, changed.target);
    }
}

#[test]
fn what_is_very_young_may_have_been_seen_half_made() {
    let mut watch = Watch::of(Vec::new());
    watch.open(vec![seen(3, Class::Tcp(TcpState::Close), "*:0")]);
    watch.change(seen(3, ESTABLISHED, "*->10.0.0.7:443"));
    let before = watch.group("*:0");
    assert_eq!((ages(before), before.track.closed()), ([0, 0, 0], 0));
    assert_eq!(ages(watch.group("*->10.0.0.7:443")), [1, 0, 0]);
    assert_eq!(watch.family(&ESTABLISHED).track.count(), 1);
}

#[test]
fn listening_sockets_are_no_connections() {
    let listen = Class::Tcp(TcpState::Listen);
    let found = vec![
        seen(3, listen, "0.0.0.0:80"),
        seen(4, ESTABLISHED, "0.0.0.0:80<-*"),
    ];
    let watch = Watch::of(found);
    assert_eq!(watch.family(&ESTABLISHED).track.count(), 1);
}

#[test]
fn what_was_there_before_the_watch_counts_as_old() {
    let mut watch = Watch::of(vec![file(3), file(4)]);
    assert_eq!(ages(watch.group("/srv/a")), [2, 2, 2]);
    let first = watch.timeline.live().iter().next().expect("two");
    assert_eq!(first.1.since, None);
    watch.look(Vec::new(), &[3], Vec::new());
    assert_eq!(ages(watch.group("/srv/a")), [1, 1, 1]);
}

#[test]
fn a_descriptor_grows_through_the_ages() {
    let mut watch = Watch::of(Vec::new());
    watch.open(vec![file(3)]);
    watch.idle(YOUNG - 1);
    assert_eq!(ages(watch.group("/srv/a")), [1, 0, 0]);
    watch.idle(1);
    assert_eq!(ages(watch.group("/srv/a")), [1, 1, 0]);
    watch.idle(OLD - YOUNG);
    assert_eq!(ages(watch.group("/srv/a")), [1, 1, 1]);
    let coarser = watch.group("/srv/a").track.ring(1);
    assert_eq!(coarser.young.padded(1)[0].max, 0);
    watch.idle(8 * YOUNG - OLD);
    let coarser = watch.group("/srv/a").track.ring(1);
    assert_eq!(coarser.young.padded(1)[0].max, 1);
}

#[test]
fn more_targets_than_there_is_room_for_are_counted_in_their_family() {
    let many = (0..300).map(|fd| seen(fd, Class::Regular, &format!("/srv/{fd}")));
    let mut watch = Watch::of(many.collect());
    assert_eq!(watch.timeline.groups().count(), 1 + 128);
    assert_eq!(watch.family(&Class::Regular).track.count(), 300);
    // Those without their own track are closed like any other.
    let all: Vec<Fd> = (0..300).collect();
    watch.look(Vec::new(), &all, Vec::new());
    assert_eq!(watch.family(&Class::Regular).track.count(), 0);
    assert!(watch.timeline.live().is_empty());
}

#[test]
fn a_target_that_nobody_holds_gives_its_place_to_a_new_one() {
    let many = (0..128).map(|fd| seen(fd, Class::Regular, &format!("/srv/{fd}")));
    let mut watch = Watch::of(many.collect());
    watch.look(Vec::new(), &[7], Vec::new());
    watch.idle(1);
    watch.open(vec![seen(7, Class::Regular, "/srv/new")]);
    assert_eq!(watch.timeline.groups().count(), 1 + 128);
    let new = watch.group("/srv/new");
    assert_eq!((ages(new), new.track.closed()), ([1, 0, 0], 0));
    assert_eq!(
        new.track.ring(0).all.padded(3)[0].max,
        0,
        "no past of the former"
    );
}

#[test]
fn a_family_whose_targets_change_for_ever_keeps_a_bounded_number_of_tracks() {
    let mut watch = Watch::of(Vec::new());
    for fd in 0..2_000_u32 {
        let closed = [fd.saturating_sub(3)];
        let opened = seen(fd, Class::Regular, &format!("/tmp/{fd}"));
        watch.look(vec![opened], &closed, Vec::new());
    }
    assert_eq!(watch.timeline.groups().count(), 1 + 128);
    assert_eq!(watch.family(&Class::Regular).track.count(), 3);
}

#[test]
fn without_a_list_the_count_is_all_there_is() {
    let mut timeline = Timeline::new();
    for (at, count) in [(1.0, 5), (2.0, 9), (3.0, 7)] {
        timeline.observe(&Look {
            at,
            count: Some(count),
            ..Look::default()
        });
    }
    assert!(!timeline.is_listed());
    assert_eq!(timeline.total().count(), 7);
    assert_eq!((timeline.baseline(), timeline.count()), (Some(5), Some(7)));
    let heights = timeline.total().ring(0).all.padded(3);
    assert_eq!(
        heights.iter().map(|it| it.max).collect::<Vec<_>>(),
        [5, 9, 7]
    );
}

#[test]
fn a_list_that_comes_late_does_not_count_everything_twice() {
    let mut timeline = Timeline::new();
    let blind = Look {
        at: 1.0,
        count: Some(2),
        ..Look::default()
    };
    timeline.observe(&blind);
    let change = LookChange {
        opened: vec![file(3), file(4)],
        ..LookChange::default()
    };
    timeline.observe(&Look {
        at: 2.0,
        table: Some(change),
        ..blind
    });
    assert_eq!(timeline.total().count(), 2);
}

#[test]
fn time_in_which_nobody_could_look_is_no_time_in_which_nothing_happened() {
    let mut timeline = Timeline::new();
    for (at, count) in [(1.0, None), (2.0, Some(8)), (3.0, None), (9.0, Some(9))] {
        timeline.observe(&Look {
            at,
            count,
            ..Look::default()
        });
    }
    assert_eq!((timeline.looks(), timeline.baseline()), (2, Some(8)));
    assert!((timeline.watched() - 7.0).abs() < 1e-9);
}

#[test]
fn memory_is_bounded_for_as_long_as_one_likes() {
    let mut watch = Watch::of((0..50).map(file).collect());
    for round in 0..20_000_u32 {
        let fd = round % 50;
        watch.look(vec![file(fd)], &[fd], Vec::new());
    }
    assert_eq!(watch.timeline.live().len(), 50);
    for ring in 0..RINGS {
        let ring = watch.group("/srv/a").track.ring(ring);
        for series in [&ring.all, &ring.young, &ring.old] {
            assert!(series.len() <= BUCKETS, "{}", series.len());
        }
    }
    // Each of the fifty waits for one age; those closed before are dropped when their turn comes.
    let waiting = watch.timeline.live().waiting();
    assert!(waiting <= 50 * 8, "{waiting}");
}

#[test]
fn a_bucket_and_a_waiting_descriptor_stay_small() {
    // Six rings of three series of 128 buckets for each of 160 groups: 12 bytes are 4 MiB.
    assert_eq!(size_of::<super::Bucket>(), 12);
    assert!(
        size_of::<super::LiveFd>() <= 96,
        "{}",
        size_of::<super::LiveFd>()
    );
}
