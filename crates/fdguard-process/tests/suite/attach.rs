//! Keepers that are started by an exec, for programs that another process forked.

use std::fs;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use fdguard_process::plan::{InheritedFd, TreeLimits};
use fdguard_process::tree::{Attach, Exit, LimitMechanism, Offer, StartError, Tree, TreeEvent};

use super::harness::{AT_ONCE, alive, empty, line, pidfd, plan, token, told, wait_for};
use super::harness::{LONG, heard};

/// Forks the program, which waits, and becomes its keeper.
const FORKER: &str = r"
import os, socket, sys
says, keeper, words, program = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
ours, theirs = socket.socketpair()
pid = os.fork()
if pid == 0:
    os.close(3)
    ours.close()
    theirs.send(says.encode())
    if theirs.recv(1) != b'g':
        os._exit(1)
    theirs.close()
    os.execvp(program[0], program)
os.dup2(ours.fileno(), 4)
os.set_inheritable(4, True)
os.execv(keeper, [keeper] + words.split() + ['main=%d' % pid])
";

/// The example of this name, which is built with the tests.
fn example(name: &str) -> String {
    let exe = std::env::current_exe().unwrap();
    let path = exe.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(path.is_file(), "{} is not built", path.display());
    path.to_str().unwrap().to_owned()
}

/// The process that forks and becomes the keeper, and the program's output.
struct Forked {
    _forker: Tree,
    offer: Offer,
    out: fs::File,
}

fn fork(says: &str, limits: TreeLimits, program: &[&str]) -> Forked {
    let mut offer = Offer::new(limits, false, Duration::from_millis(50)).unwrap();
    let told: Vec<_> = offer.words();
    let told: Vec<_> = told.iter().map(|word| word.to_str().unwrap()).collect();
    let (keeper, told) = (example("keep_here"), told.join(" "));
    let words = [&["python3", "-c", FORKER, says, &keeper, &told], program].concat();
    let (mut plan, out) = heard(plan(&words));
    let theirs = offer.theirs().unwrap().try_clone_to_owned().unwrap();
    plan.handed = vec![InheritedFd {
        fd: Arc::new(theirs),
        name: None,
    }];
    let forker = Tree::start(&plan).unwrap();
    offer.sent();
    Forked {
        _forker: forker,
        offer,
        out,
    }
}

fn family(token: &str) -> Forked {
    let program = testkit::c_victim("family");
    fork(
        "ready",
        TreeLimits::default(),
        &[program.to_str().unwrap(), token],
    )
}

fn held() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_tree_that_somebody_else_forked_is_ended_wholly() {
    let token = token();
    let mut forked = family(&token);
    let mut tree = Tree::attach(forked.offer).unwrap();
    assert_eq!(line(&mut forked.out), "up");
    assert!(tree.members().len() > 3);
    assert_eq!(tree.members().first(), Some(&tree.main()));
    assert_ne!(tree.keeper(), tree.main());
    tree.stop(AT_ONCE);
    let (exit, killed) = empty(&mut tree);
    assert_eq!(exit, Exit::Signal(libc::SIGKILL));
    assert!(killed > 3, "{killed}");
    assert_eq!(alive(&token), [0; 0]);
}

#[test]
fn an_attached_tree_tells_what_others_tell_and_costs_one_descriptor() {
    let before = held();
    let forked = fork("ready", TreeLimits::default(), &["sh", "-c", "exit 6"]);
    let (forker, mut offer) = (forked._forker, forked.offer);
    drop(forked.out);
    let with_forker = held();
    let mut tree = loop {
        wait_for(offer.fd());
        match offer.attach().unwrap() {
            Attach::Done(tree) => break tree,
            Attach::NotYet(again) => offer = again,
        }
    };
    assert_eq!(held(), with_forker, "what the offer was is the tree");
    assert!(tree.pidfd().is_none());
    let exit = Exit::Code(6);
    assert_eq!(told(&mut tree), TreeEvent::MainEnded { exit, left: 0 });
    assert_eq!(empty(&mut tree), (exit, 0));
    drop((tree, forker));
    assert_eq!(held(), before);
}

#[test]
fn what_a_waiting_program_could_not_do_is_told_and_nothing_is_left() {
    let token = token();
    let forked = fork("folder 2", TreeLimits::default(), &["sleep", &token]);
    let error = Tree::attach(forked.offer).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot change to its directory: No such file or directory (os error 2)"
    );
    let StartError::Refused { source, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    let mut forker = forked._forker;
    assert_eq!(empty(&mut forker).0, Exit::Code(1));
}

#[test]
fn the_tree_of_an_owner_that_never_attached_ends() {
    let token = token();
    let mut forked = family(&token);
    assert_eq!(line(&mut forked.out), "up");
    drop(forked.offer);
    let mut forker = forked._forker;
    // The forker is now the keeper, and ends only after all others.
    empty(&mut forker);
    assert_eq!(alive(&token), [0; 0]);
}

#[test]
fn an_attached_program_that_loses_its_keeper_is_ended_by_what_is_known() {
    let forked = fork("ready", TreeLimits::default(), &["sleep", "1000"]);
    let mut tree = Tree::attach(forked.offer).unwrap();
    let main = pidfd(tree.main());
    let keeper = fdguard_proc::ProcKey::read(tree.keeper()).unwrap();
    keeper.signal(rustix::process::Signal::KILL).unwrap();
    assert_eq!(told(&mut tree), TreeEvent::Lost);
    wait_for(main.as_fd());
}

#[test]
fn limits_are_put_on_a_program_that_waits() {
    let limits = TreeLimits {
        descriptors: Some(44),
        cpu: Some(LONG),
        processes: Some(9),
        ..TreeLimits::default()
    };
    let mut forked = fork("ready", limits, &["sh", "-c", "ulimit -Sn; ulimit -Ht"]);
    let mut tree = Tree::attach(forked.offer).unwrap();
    assert_eq!(line(&mut forked.out), "44");
    assert_eq!(line(&mut forked.out), (LONG.as_secs() + 1).to_string());
    let enforced = tree.enforced();
    assert_eq!(enforced.descriptors, LimitMechanism::Rlimit);
    assert_eq!(enforced.cpu, LimitMechanism::Rlimit);
    assert_eq!(enforced.processes, LimitMechanism::Nobody);
    assert_eq!(empty(&mut tree).0, Exit::Code(0));
}
