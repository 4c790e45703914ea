use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

use super::{FdStore, StoreChange};
use crate::notify::NotifyMessage;

fn store(name: Option<&str>) -> NotifyMessage {
    NotifyMessage {
        store: true,
        name: name.map(str::to_owned),
        ..NotifyMessage::default()
    }
}

fn null() -> OwnedFd {
    File::open("/dev/null").unwrap().into()
}

fn names(store: &FdStore) -> Vec<String> {
    let handed = store.handed().into_iter();
    handed.map(|handed| handed.name.unwrap()).collect()
}

#[test]
fn what_is_given_is_handed_over_with_its_name_and_kept() {
    let mut kept = FdStore::default();
    kept.hear(&store(Some("a")), vec![null()]);
    kept.hear(&store(None), vec![null(), null()]);
    assert_eq!(names(&kept), ["a", "stored", "stored"]);
    assert_eq!(
        names(&kept),
        ["a", "stored", "stored"],
        "the next start, too"
    );
}

#[test]
fn descriptors_of_other_messages_are_closed() {
    let mut kept = FdStore::default();
    let (ours, theirs) = UnixStream::pair().unwrap();
    assert_eq!(
        kept.hear(&NotifyMessage::default(), vec![theirs.into()]),
        []
    );
    assert!(kept.is_empty());
    let mut buffer = [0; 1];
    let end = std::io::Read::read(&mut &ours, &mut buffer).unwrap();
    assert_eq!(end, 0, "the other end is closed");
}

#[test]
fn the_same_open_file_is_kept_once_and_a_second_opening_of_it_is_another() {
    let mut kept = FdStore::default();
    let one = null();
    let duplicate = one.try_clone().unwrap();
    kept.hear(&store(Some("a")), vec![one]);
    let merged = kept.hear(&store(Some("b")), vec![duplicate]);
    assert_eq!(merged, [StoreChange::Merged { name: "a".into() }]);
    let second = kept.hear(&store(Some("b")), vec![null()]);
    assert_eq!(second, [StoreChange::Stored { name: "b".into() }]);
    assert_eq!(kept.len(), 2);
}

#[test]
fn two_eventfds_are_two_though_they_share_an_inode() {
    let flags = rustix::event::EventfdFlags::CLOEXEC;
    let eventfd = || rustix::event::eventfd(0, flags).unwrap();
    let mut kept = FdStore::default();
    kept.hear(&store(Some("a")), vec![eventfd(), eventfd()]);
    assert_eq!(kept.len(), 2);
}

#[test]
fn there_is_a_maximum_and_it_is_told() {
    let mut kept = FdStore::new(1);
    let changes = kept.hear(&store(Some("x")), vec![null(), null()]);
    let name = || "x".to_owned();
    assert_eq!(
        changes,
        [
            StoreChange::Stored { name: name() },
            StoreChange::Full { name: name() }
        ]
    );
    assert_eq!(kept.len(), 1);
}

#[test]
fn the_name_says_what_is_forgotten_and_no_name_forgets_nothing() {
    let mut kept = FdStore::default();
    kept.hear(&store(Some("a")), vec![null(), null()]);
    kept.hear(&store(Some("b")), vec![null()]);
    let remove = |name: Option<&str>| NotifyMessage {
        store_remove: true,
        name: name.map(str::to_owned),
        ..NotifyMessage::default()
    };
    assert_eq!(kept.hear(&remove(None), vec![]), []);
    let removed = kept.hear(&remove(Some("a")), vec![]);
    let name = "a".to_owned();
    assert_eq!(removed, [StoreChange::Removed { name, count: 2 }]);
    assert_eq!(names(&kept), ["b"]);
}

#[test]
fn what_hangs_up_is_forgotten_unless_it_is_not_polled() {
    let mut kept = FdStore::default();
    let pair = || UnixStream::pair().unwrap();
    let ((first, first_far), (second, second_far), (third, _third_far)) = (pair(), pair(), pair());
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("s")).unwrap();
    kept.hear(&store(Some("polled")), vec![first.into()]);
    let not_polled = NotifyMessage {
        poll: false,
        ..store(Some("not polled"))
    };
    kept.hear(&not_polled, vec![second.into()]);
    kept.hear(&store(Some("alive")), vec![third.into(), null()]);
    kept.hear(&store(Some("listener")), vec![listener.into()]);
    assert_eq!(kept.poll(), []);
    drop((first_far, second_far));
    let name = "polled".to_owned();
    assert_eq!(kept.poll(), [StoreChange::HungUp { name }]);
    assert_eq!(names(&kept), ["not polled", "alive", "alive", "listener"]);
    assert_eq!(kept.polled().count(), 3);
}
