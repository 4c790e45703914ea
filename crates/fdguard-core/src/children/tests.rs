use super::{ChildStart, ChildState, Children};
use crate::TraceKey;
use crate::event::StackId;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const SERVER: TraceKey = TraceKey { pid: 1, began: 0 };

/// A server that began at 0, with children numbered as they come.
struct Story {
    children: Children,
    next: u32,
}

impl Story {
    fn new() -> Self {
        let mut children = Children::default();
        children.add_process(SERVER, 0);
        Self {
            children,
            next: 100,
        }
    }

    fn start(&mut self, at: u64) -> u32 {
        self.next += 1;
        let start = ChildStart {
            parent: SERVER,
            thread: 1,
            at,
            stack: Some(StackId(1)),
        };
        self.children.add_start(self.next, start);
        self.next
    }

    fn wait(&mut self, pid: u32, at: u64) {
        self.children.add_wait(SERVER, pid, at);
    }

    /// How many are in a pile at this time, with the process active until then.
    fn piled(&mut self, now: u64) -> u64 {
        self.children.note_activity(SERVER, now);
        self.children.review(now);
        self.children.piles().iter().map(|pile| pile.left()).sum()
    }
}

#[test]
fn a_child_for_each_request_that_nobody_waits_for_piles_up() {
    let mut story = Story::new();
    for request in 0..24 {
        let pid = story.start((request + 2) * SECOND / 2);
        let state = match request % 6 {
            0 => ChildState::Zombie,
            _ => ChildState::Running("sleep".into()),
        };
        story.children.see(SERVER, pid, state, 0);
    }
    assert_eq!(story.piled(13 * SECOND), 24);
    let piles = story.children.piles();
    let [pile] = piles.as_slice() else {
        panic!("{piles:?}");
    };
    assert_eq!((pile.running, pile.zombies, pile.waited), (20, 4, 0));
    assert_eq!(pile.names, [("sleep".into(), 20)].into());
}

#[test]
fn children_that_are_waited_for_are_no_pile() {
    let mut story = Story::new();
    for request in 0..100 {
        let at = request * 100 * MS;
        let pid = story.start(at);
        story.wait(pid, at + 90 * MS);
    }
    assert_eq!(story.piled(10 * SECOND), 0);
    let sites = story.children.sites(10 * SECOND);
    assert_eq!(
        (sites[0].started, sites[0].waited, sites[0].left()),
        (100, 100, 0)
    );
}

#[test]
fn workers_that_are_started_first_are_no_pile_and_neither_are_those_that_replace_them() {
    let mut story = Story::new();
    let mut workers: Vec<u32> = (0..16).map(|one| story.start(one * 5 * MS)).collect();
    assert_eq!(story.piled(20 * SECOND), 0);
    for second in 1..15 {
        let dead = workers.remove(0);
        story.wait(dead, second * SECOND);
        workers.push(story.start(second * SECOND + MS));
    }
    assert_eq!(story.piled(21 * SECOND), 0);
}

#[test]
fn jobs_that_take_a_while_are_no_pile() {
    let mut story = Story::new();
    let mut running = std::collections::VecDeque::new();
    for second in 0..60 {
        running.push_back(story.start(second * SECOND));
        if running.len() > 12 {
            let done = running.pop_front().unwrap();
            story.wait(done, second * SECOND);
        }
    }
    assert_eq!(story.piled(60 * SECOND), 0);
}

#[test]
fn a_pool_that_grew_and_is_full_is_no_pile_while_the_program_works_on() {
    let mut story = Story::new();
    for worker in 0..12 {
        story.start(worker * SECOND);
    }
    assert_eq!(story.piled(40 * SECOND), 0);
}

#[test]
fn a_server_that_is_idle_after_its_last_request_is_judged_as_before() {
    let mut story = Story::new();
    for request in 0..20 {
        story.start(request * SECOND / 2);
    }
    assert_eq!(story.piled(10 * SECOND), 20);
    story.children.review(60 * SECOND);
    assert_eq!(story.children.piles().len(), 1);
}

#[test]
fn children_that_the_kernel_collects_are_gone() {
    let mut story = Story::new();
    for request in 0..40 {
        let at = request * SECOND / 2;
        let pid = story.start(at);
        story.children.see(SERVER, pid, ChildState::Gone, at + MS);
    }
    assert_eq!(story.piled(20 * SECOND), 0);
}

#[test]
fn a_wait_that_is_reported_before_its_start_belongs_to_it() {
    let mut story = Story::new();
    story.wait(101, SECOND);
    assert_eq!(story.start(SECOND + MS), 101);
    let site = &story.children.sites(2 * SECOND)[0];
    assert_eq!((site.started, site.waited, site.left()), (1, 1, 0));
    // Much later, the same number is another child.
    story.wait(102, 2 * SECOND);
    story.start(20 * SECOND);
    assert_eq!(story.children.sites(21 * SECOND)[0].left(), 1);
}

#[test]
fn a_pile_that_the_end_takes_down_was_one_and_one_that_work_took_down_was_none() {
    let mut ended = Story::new();
    let pids: Vec<u32> = (0..20).map(|one| ended.start(one * SECOND / 2)).collect();
    assert_eq!(ended.piled(10 * SECOND), 20);
    for pid in &pids {
        ended.wait(*pid, 10 * SECOND + MS);
    }
    ended.children.end(SERVER, 10 * SECOND + 2 * MS);
    assert_eq!(ended.children.piles().len(), 1);

    let mut worked = Story::new();
    let pids: Vec<u32> = (0..20).map(|one| worked.start(one * SECOND / 2)).collect();
    assert_eq!(worked.piled(10 * SECOND), 20);
    for pid in &pids {
        worked.wait(*pid, 11 * SECOND);
    }
    assert_eq!(worked.piled(12 * SECOND), 0);
    worked.children.end(SERVER, 30 * SECOND);
    assert_eq!(worked.children.piles().len(), 0);
}

#[test]
fn after_the_end_of_the_parent_nothing_changes() {
    let mut story = Story::new();
    let pid = story.start(SECOND);
    story.children.end(SERVER, 2 * SECOND);
    assert_eq!(story.children.unwaited(), []);
    assert_eq!(story.children.start_of(pid).unwrap().at, SECOND);
}

#[test]
fn a_call_that_keeps_its_child_to_itself_is_found_by_the_time_if_it_was_the_only_one() {
    let mut story = Story::new();
    let mut call = |since: u64, until: u64, stack: u32| {
        let start = ChildStart {
            parent: SERVER,
            thread: 1,
            at: until,
            stack: Some(StackId(stack)),
        };
        story.children.add_start_within(since, start);
    };
    call(SECOND, 3 * SECOND, 1);
    call(2 * SECOND, 4 * SECOND, 2);
    let at = |time: u64| story.children.start_around(time).and_then(|one| one.stack);
    assert_eq!(at(SECOND + MS), Some(StackId(1)));
    assert_eq!(at(2 * SECOND + MS), None, "two at once");
    assert_eq!(at(5 * SECOND), None);
}

/// A look at the children fell between a wait and its event.
#[test]
fn a_child_that_is_gone_before_its_wait_is_reported_was_waited_for() {
    let mut story = Story::new();
    let pid = story.start(SECOND);
    story
        .children
        .see(SERVER, pid, ChildState::Gone, 2 * SECOND);
    story.wait(pid, 2 * SECOND - MS);
    let site = &story.children.sites(3 * SECOND)[0];
    assert_eq!((site.started, site.waited, site.left()), (1, 1, 0));
}

#[test]
fn a_copy_of_the_server_for_each_client_is_no_pile_until_it_ends() {
    let mut story = Story::new();
    let pids: Vec<u32> = (0..20).map(|one| story.start(one * SECOND / 2)).collect();
    for pid in &pids {
        let serving = ChildState::Serving("server".into());
        story.children.see(SERVER, *pid, serving, 0);
    }
    assert_eq!(story.piled(10 * SECOND), 0);
    for pid in &pids {
        story.children.see(SERVER, *pid, ChildState::Zombie, 0);
    }
    assert_eq!(story.piled(10 * SECOND), 20);
}

/// Looks come at arbitrary times: the last children before the end were not counted.
#[test]
fn a_pile_has_all_that_were_there_when_the_end_began() {
    let mut story = Story::new();
    let mut pids: Vec<u32> = (0..20).map(|one| story.start(one * SECOND / 2)).collect();
    assert_eq!(story.piled(9 * SECOND + 600 * MS), 20);
    pids.push(story.start(10 * SECOND));
    for pid in &pids[..6] {
        story.wait(*pid, 10 * SECOND + MS);
    }
    story.children.end(SERVER, 10 * SECOND + 2 * MS);
    assert_eq!(story.children.piles()[0].left(), 21);
}
