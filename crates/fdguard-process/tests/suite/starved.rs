//! An owner whose table is full.

use fdguard_process::reserve::Reserve;
use fdguard_process::tree::{Exit, Options, StartError, Tree};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::harness::{empty, fill, shell};

#[test]
fn a_start_works_with_a_full_table_when_descriptors_were_held_back() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(64);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    let mut reserve = Reserve::new(Reserve::FOR_A_START).unwrap();
    let taken = fill();
    let error = Tree::start(&shell("exit 4")).unwrap_err();
    assert!(matches!(error, StartError::Refused { .. }), "{error}");
    for _ in 0..3 {
        let options = Options {
            reserve: Some(&mut reserve),
            ..Options::default()
        };
        let mut tree = Tree::start_with(&shell("exit 4"), options).unwrap();
        assert_eq!(reserve.held(), Reserve::FOR_A_START - 2, "a tree holds two");
        assert_eq!(empty(&mut tree).0, Exit::Code(4));
        drop(tree);
        assert!(reserve.take_back());
    }
    drop(taken);
}

#[test]
fn a_start_needs_two_numbers() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(64);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    let mut taken = fill();
    taken.pop();
    let error = Tree::start(&shell("exit 4")).unwrap_err();
    assert!(matches!(error, StartError::Refused { .. }), "{error}");
    taken.pop();
    let mut tree = Tree::start(&shell("exit 4")).unwrap();
    assert_eq!(empty(&mut tree).0, Exit::Code(4));
    drop((tree, taken));
}
