//! Stacks of real programs.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use fdguard_kernel::{
    CapturedStack, KernelTracer, Occurrence, StackMode, StackSlot, TracerOptions,
};

use super::load;

/// A program that opens from two places, as often as it is told.
struct TwoPlaces {
    child: Child,
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
    /// Return addresses of the two callers, as the program knows them.
    callers: Vec<u64>,
}

impl TwoPlaces {
    fn start(flags: &[&str]) -> Self {
        let name = if flags.contains(&"-fno-omit-frame-pointer") {
            "fp"
        } else {
            "plain"
        };
        let program = testkit::c_variant("two_places", name, flags).unwrap();
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut started = Self {
            child,
            input,
            output,
            callers: Vec::new(),
        };
        started.callers = started.open(1);
        started
    }

    /// Opens so often from each place; answers what the program printed.
    fn open(&mut self, count: u32) -> Vec<u64> {
        writeln!(self.input, "{count}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let words = line.split_whitespace();
        words
            .map(|word| u64::from_str_radix(word, 16).unwrap())
            .collect()
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

/// The stacks that came, and the numbers of the opens of `/dev/null` in order.
fn drain(tracer: &mut KernelTracer, pid: u32) -> (HashMap<u32, CapturedStack>, Vec<u32>) {
    let mut stacks = HashMap::new();
    let mut opens = Vec::new();
    tracer
        .drain(&mut |event| match event.what {
            Occurrence::Stack(stack) => {
                stacks.insert(stack.number, *stack);
            }
            Occurrence::Opened { .. } if event.pid == pid => opens.push(event.stack),
            _ => {}
        })
        .unwrap();
    (stacks, opens)
}

#[test]
fn frame_pointers_show_both_callers_once_each() {
    let options = TracerOptions {
        mode: StackMode::FramePointers,
        ..TracerOptions::default()
    };
    let Some(mut tracer) = load(&options) else {
        return;
    };
    tracer.follow(std::process::id(), StackMode::None).unwrap();
    let mut places = TwoPlaces::start(&[
        "-O1",
        "-DRAW",
        "-fno-omit-frame-pointer",
        "-fno-optimize-sibling-calls",
    ]);
    drain(&mut tracer, 0);
    places.open(50);
    let (stacks, opens) = drain(&mut tracer, places.child.id());
    assert_eq!(opens.len(), 100);
    // They were sent with the first opens.
    assert!(stacks.is_empty(), "{stacks:?}");
    let (first, second) = (opens[0], opens[50]);
    assert!(first != 0 && second != 0 && first != second);
    assert!(opens[..50].iter().all(|stack| *stack == first));
    assert!(opens[50..].iter().all(|stack| *stack == second));
    places.end();
}

/// The slots of a stack as the test knows them: the return address to the caller, wherever it is.
fn slots(stack: &CapturedStack, callers: &[u64]) -> Vec<StackSlot> {
    let words = stack.memory.chunks_exact(8).enumerate();
    let words =
        words.map(|(index, word)| (index, u64::from_ne_bytes(*word.first_chunk().unwrap())));
    words
        .filter(|(_, word)| callers.contains(word))
        .map(|(index, address)| StackSlot {
            offset: u64::try_from(index).unwrap() * 8,
            address,
        })
        .collect()
}

#[test]
fn a_copied_stack_is_recognised_and_another_caller_is_not_mistaken_for_it() {
    let Some(mut tracer) = load(&TracerOptions::default()) else {
        return;
    };
    tracer.follow(std::process::id(), StackMode::None).unwrap();
    let mut places = TwoPlaces::start(&["-O2", "-fno-optimize-sibling-calls"]);
    let pid = places.child.id();
    let (stacks, opens) = drain(&mut tracer, pid);
    let [.., first, second] = opens[..] else {
        panic!("{opens:?}");
    };
    assert_ne!(first, second);
    for number in [first, second] {
        let stack = &stacks[&number];
        assert!(stack.memory.len() > 256, "{}", stack.memory.len());
        let slots = slots(stack, &places.callers);
        assert_eq!(slots.len(), 1, "{:x?} {slots:x?}", places.callers);
        tracer.remember(number, &slots).unwrap();
    }
    assert_ne!(
        slots(&stacks[&first], &places.callers)[0].address,
        slots(&stacks[&second], &places.callers)[0].address
    );
    places.open(1000);
    let (stacks, opens) = drain(&mut tracer, pid);
    assert_eq!((stacks.len(), opens.len()), (0, 2000));
    assert!(opens[..1000].iter().all(|stack| *stack == first));
    assert!(opens[1000..].iter().all(|stack| *stack == second));
    places.end();
}

#[test]
fn a_burst_is_recognised_before_anybody_has_unwound_it() {
    let Some(mut tracer) = load(&TracerOptions::default()) else {
        return;
    };
    tracer.follow(std::process::id(), StackMode::None).unwrap();
    let mut places = TwoPlaces::start(&["-O2", "-fno-optimize-sibling-calls"]);
    let pid = places.child.id();
    let (mut stacks, _) = drain(&mut tracer, pid);
    places.open(5000);
    let (more, opens) = drain(&mut tracer, pid);
    assert_eq!(opens.len(), 10000);
    assert!(more.len() < 100, "{}", more.len());
    stacks.extend(more);
    let callers = places.callers.clone();
    let found = stacks
        .iter()
        .map(|(number, stack)| (number, slots(stack, &callers)));
    let found = found.filter_map(|(number, slots)| Some((*number, slots.first()?.address)));
    let found: HashMap<u32, u64> = found.collect();
    let caller = |number: &u32| found[number];
    assert!(
        opens[..5000]
            .iter()
            .all(|stack| caller(stack) == callers[0])
    );
    assert!(
        opens[5000..]
            .iter()
            .all(|stack| caller(stack) == callers[1])
    );
    assert_eq!(tracer.lost().stacks, 0);
    places.end();
}

#[test]
fn a_failed_close_has_a_stack() {
    let Some(mut tracer) = load(&TracerOptions::default()) else {
        return;
    };
    tracer.follow(std::process::id(), StackMode::None).unwrap();
    let script = "import os\ntry: os.close(777)\nexcept OSError: pass";
    let status = Command::new("python3")
        .args(["-c", script])
        .status()
        .unwrap();
    assert!(status.success());
    let mut found = None;
    tracer
        .drain(&mut |event| {
            if let Occurrence::Closed {
                fd: 777, errno: 9, ..
            } = event.what
            {
                found = Some(event.stack);
            }
        })
        .unwrap();
    assert!(found.is_some_and(|stack| stack != 0), "{found:?}");
}

#[test]
fn what_an_ioctl_opens_has_a_stack() {
    let Some(mut tracer) = load(&TracerOptions::default()) else {
        return;
    };
    tracer.follow(std::process::id(), StackMode::None).unwrap();
    // TIOCGPTPEER opens the other end of a pseudo-terminal.
    let script = "import fcntl, os; print(fcntl.ioctl(os.openpty()[0], 0x5441, os.O_RDWR))";
    let output = Command::new("python3")
        .args(["-c", script])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let peer: u32 = text.trim_end().parse().unwrap();
    let mut found = None;
    tracer
        .drain(&mut |event| match event.what {
            Occurrence::Opened { fd, call: 16, .. } if fd == peer => found = Some(event.stack),
            _ => {}
        })
        .unwrap();
    assert!(found.is_some_and(|stack| stack != 0), "{found:?}");
}

#[test]
fn children_are_reported_with_the_stack_of_their_start() {
    let Some(mut tracer) = load(&TracerOptions::default()) else {
        return;
    };
    tracer.follow(std::process::id(), StackMode::None).unwrap();
    // A child that only stopped was not waited for, nor one that stays a zombie.
    let script = "
import os, signal
def child():
    pid = os.fork()
    if pid: return pid
    while True: signal.pause()
one, two = child(), child()
os.kill(one, signal.SIGSTOP)
os.waitpid(one, os.WUNTRACED)
for pid in one, two: os.kill(pid, signal.SIGKILL)
os.waitid(os.P_PID, one, os.WEXITED | os.WNOWAIT)
print(os.getpid(), one, two, flush=True)
os.waitid(os.P_PID, two, os.WEXITED)
os.waitpid(one, 0)
";
    let output = Command::new("python3")
        .args(["-c", script])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let pids: Vec<u32> = text
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    // `python3` may be a script that becomes Python.
    let is_theirs = |pid, child| pid == pids[0] && pids.contains(&child);
    let (mut started, mut reaped) = (Vec::new(), Vec::new());
    tracer
        .drain(&mut |event| match event.what {
            Occurrence::Started { child } if is_theirs(event.pid, child) => {
                assert_ne!(event.stack, 0);
                started.push(child);
            }
            Occurrence::Reaped { child } if is_theirs(event.pid, child) => reaped.push(child),
            _ => {}
        })
        .unwrap();
    assert_eq!(started, pids[1..]);
    assert_eq!(reaped, [pids[2], pids[1]]);
}
