//! Limits that a cgroup enforces, if its controllers are available: as root in the top cgroup, or
//! in one that only this process uses.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use fdguard_process::plan::{Plan, TreeLimits};
use fdguard_process::tree::{Exit, LimitMechanism, Mechanism, Tree, TreeEvent};

use super::harness::{AT_ONCE, empty, heard, line, plan, told};

const MEMORY: u64 = 64 << 20;

fn limited(command: &[&str]) -> Plan {
    let mut plan = plan(command);
    plan.cgroup = true;
    plan.limits = TreeLimits {
        memory: Some(MEMORY),
        processes: Some(8),
        ..TreeLimits::default()
    };
    plan
}

/// Starts it, or reports that no cgroup enforces limits.
fn start(plan: &Plan) -> Option<Tree> {
    let tree = Tree::start(plan).unwrap();
    if tree.enforced().memory == LimitMechanism::Cgroup
        && tree.enforced().processes == LimitMechanism::Cgroup
    {
        assert_eq!(tree.mechanism(), Mechanism::KeeperAndCgroup);
        return Some(tree);
    }
    testkit::skip("no cgroup with the controllers of memory and processes can be made here");
    None
}

fn main_ended(tree: &mut Tree) -> (Exit, Option<u32>) {
    loop {
        if let TreeEvent::MainEnded { exit, .. } = told(tree) {
            return (exit, tree.usage().unwrap().memory_kills);
        }
    }
}

#[test]
fn a_tree_that_uses_its_memory_up_is_ended_as_one_and_the_kill_is_told() {
    // Each is below the limit, all together are not.
    let greedy = "
import os, time
for _ in range(4):
    if os.fork() == 0:
        mine = bytearray(os.urandom(1)) * (24 << 20)
        time.sleep(1000)
time.sleep(1000)";
    let Some(mut tree) = start(&limited(&["python3", "-c", greedy])) else {
        return;
    };
    let (exit, kills) = main_ended(&mut tree);
    assert_eq!(exit, Exit::Signal(9));
    assert!(kills.is_some_and(|kills| kills > 0), "{kills:?}");
    empty(&mut tree);
}

#[test]
fn a_tree_that_ends_by_itself_has_no_kills_for_memory() {
    let Some(mut tree) = start(&limited(&["true"])) else {
        return;
    };
    assert_eq!(main_ended(&mut tree), (Exit::Code(0), Some(0)));
    empty(&mut tree);
}

#[test]
fn one_process_more_is_refused_to_the_tree_and_it_goes_on() {
    let many = "
import os, time
made = 0
while True:
    try:
        if os.fork() == 0:
            time.sleep(1000)
    except BlockingIOError:
        break
    made += 1
print(made, flush=True)
time.sleep(1000)";
    let (plan, mut out) = heard(limited(&["python3", "-c", many]));
    let Some(mut tree) = start(&plan) else {
        return;
    };
    drop(plan);
    assert_eq!(line(&mut out), "7");
    tree.stop(AT_ONCE);
    empty(&mut tree);
}

/// A new cgroup that may be divided; `None` if none can be created.
fn own_group() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let root = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (dir, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(dir))
    });
    let root = root?;
    for controller in ["+memory", "+pids"] {
        fs::write(root.join("cgroup.subtree_control"), controller).ok()?;
    }
    let group = root.join(format!("service-{}", std::process::id()));
    fs::create_dir(&group).ok()?;
    Some(group)
}

/// Not a test: an owner that starts in an inner node of its cgroup tree.
#[test]
#[ignore = "a role that another test starts"]
fn role() {
    if std::env::var_os("FDGUARD_TEST_ROLE").is_none() {
        testkit::skip("no role was given");
        return;
    }
    // There was a tree before limits were requested.
    let mut before = Tree::start(&plan(&["sleep", "1000"])).unwrap();
    let mut tree = Tree::start(&limited(&["sleep", "1000"])).unwrap();
    println!("kept by {:?} in {}", tree.enforced().memory, cgroup("self"));
    println!("tree in {}", cgroup(&tree.main().to_string()));
    for tree in [&mut before, &mut tree] {
        tree.stop(AT_ONCE);
        empty(tree);
    }
}

fn cgroup(pid: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let own = text.lines().find_map(|line| line.strip_prefix("0::"));
    own.unwrap().to_owned()
}

/// Runs the role in this group; on request with a neighbour that is not below it.
fn in_group(group: &std::path::Path, neighbour: bool) -> String {
    let with = if neighbour {
        "sleep 1000 & N=$!;"
    } else {
        "exec"
    };
    let script = format!(
        "echo $$ > {}/cgroup.procs; {with} \"$0\" --ignored --exact suite::cgroup_limits::role --nocapture; kill $N; wait",
        group.display()
    );
    let exe = std::env::current_exe().unwrap();
    let mut command = Command::new("bash");
    command.args(["-c", &script]).arg(exe);
    command.env("FDGUARD_TEST_ROLE", "owner");
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn an_owner_in_the_middle_of_its_own_cgroup_steps_aside_and_divides_it() {
    let Some(group) = own_group() else {
        testkit::skip("no cgroup with the controllers of memory and processes can be made here");
        return;
    };
    let name = group.file_name().unwrap().to_str().unwrap().to_owned();
    let said = in_group(&group, false);
    assert!(
        said.contains(&format!("kept by Cgroup in /{name}/fdguard-self-")),
        "{said}"
    );
    assert!(
        said.contains(&format!("tree in /{name}/fdguard-")),
        "{said}"
    );
    assert!(!said.contains("fdguard-self-0"), "{said}");
    // The next owner removes the leaf that this one moved into.
    let said = in_group(&group, false);
    assert!(said.contains("kept by Cgroup"), "{said}");
    let leaves = fs::read_dir(&group)
        .unwrap()
        .flatten()
        .filter(|it| it.path().is_dir());
    let leaves: Vec<_> = leaves.map(|it| it.path()).collect();
    assert_eq!(leaves.len(), 1, "{leaves:?}");
    for leaf in leaves {
        fs::remove_dir(leaf).unwrap();
    }
    fs::remove_dir(group).unwrap();
}

#[test]
fn an_owner_with_neighbours_in_its_cgroup_leaves_them_where_they_are() {
    let Some(group) = own_group() else {
        testkit::skip("no cgroup with the controllers of memory and processes can be made here");
        return;
    };
    let said = in_group(&group, true);
    let name = group.file_name().unwrap().to_str().unwrap();
    assert!(
        said.contains(&format!("kept by Rlimit in /{name}\n")),
        "{said}"
    );
    fs::remove_dir(group).unwrap();
}
