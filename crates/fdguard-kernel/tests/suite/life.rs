//! Starting, losing and ending.

use std::process::Command;
use std::time::Duration;

use fdguard_kernel::{KernelTracer, Occurrence, StackMode, TracerOptions, TracerScope};

use super::load;

/// The ids of the programs and maps that a process holds.
fn held_by(pid: u32) -> Vec<String> {
    let mut ids = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        for line in text.lines() {
            if line.starts_with("prog_id:") || line.starts_with("map_id:") {
                ids.push(line.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
    }
    ids
}

/// Whether the kernel still has this object.
fn exists(id: &str) -> bool {
    let (kind, id) = id.split_once(": ").unwrap();
    let kind = if kind == "prog_id" { "prog" } else { "map" };
    let output = Command::new("bpftool")
        .args([kind, "show", "id", id])
        .output();
    output.unwrap().status.success()
}

/// How many events of a child come, all of them drained at the end.
fn run_and_count(tracer: &mut KernelTracer, program: &str, arguments: &[&str]) -> usize {
    let mut child = Command::new(program).args(arguments).spawn().unwrap();
    let pid = child.id();
    assert!(child.wait().unwrap().success());
    let mut count = 0;
    let mut take = |event: fdguard_kernel::KernelEvent| {
        count += usize::from(event.pid == pid && !matches!(event.what, Occurrence::Stack(_)));
    };
    tracer.drain(&mut take).unwrap();
    count
}

#[test]
fn nothing_is_left_after_it_is_killed() {
    if !testkit::have("bpftool") && !std::path::Path::new("/usr/sbin/bpftool").exists() {
        testkit::skip("no bpftool");
        return;
    }
    if load(&TracerOptions::default()).is_none() {
        return;
    }
    // The example loads the programs, follows itself and its child.
    let example = std::env::current_exe().unwrap();
    let example = example
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples/follow");
    if !example.is_file() {
        testkit::skip("the example is not built");
        return;
    }
    let mut child = Command::new(example)
        .args(["sleep", "600"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    // It has started its child: everything is loaded.
    let sleeper = testkit::wait_for("its child", || {
        let children = std::fs::read_to_string(&children).unwrap();
        (!children.is_empty()).then_some(children)
    });
    let ids = held_by(child.id());
    assert!(ids.len() > 10 && ids.iter().all(|id| exists(id)), "{ids:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    for pid in sleeper.split_whitespace() {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    // The kernel frees them after a grace period.
    testkit::wait_until("the programs are gone", || !ids.iter().any(|id| exists(id)));
}

#[test]
fn two_tracers_report_the_same_at_once() {
    let options = TracerOptions {
        mode: StackMode::None,
        ..TracerOptions::default()
    };
    let (Some(mut first), Some(mut second)) = (load(&options), load(&options)) else {
        return;
    };
    for tracer in [&first, &second] {
        tracer.follow(std::process::id(), StackMode::None).unwrap();
    }
    let child = Command::new("true").output().unwrap();
    assert!(child.status.success());
    let collect = |tracer: &mut KernelTracer| {
        let mut events = Vec::new();
        tracer
            .drain(&mut |mut event| {
                event.at = 0;
                events.push(event);
            })
            .unwrap();
        events
    };
    let events = collect(&mut first);
    assert!(events.iter().any(|event| event.what == Occurrence::Exited));
    assert_eq!(events, collect(&mut second));
}

#[test]
fn what_does_not_fit_is_counted() {
    let options = TracerOptions {
        mode: StackMode::None,
        room: Some(4096),
        ..TracerOptions::default()
    };
    let Some(mut tracer) = load(&options) else {
        return;
    };
    tracer.follow(std::process::id(), StackMode::None).unwrap();
    let script = "i=0; while [ $i -lt 100 ]; do : </dev/null; i=$((i+1)); done";
    let count = run_and_count(&mut tracer, "sh", &["-c", script]);
    let lost = tracer.lost();
    assert!(count < 100 && lost.events > 100, "{count} {lost:?}");
    // There is room again.
    assert!(run_and_count(&mut tracer, "true", &[]) > 3);
}

#[test]
fn a_process_that_is_not_followed_is_not_reported() {
    let Some(mut tracer) = load(&TracerOptions::default()) else {
        return;
    };
    assert_eq!(run_and_count(&mut tracer, "true", &[]), 0);
    tracer.follow(std::process::id(), StackMode::None).unwrap();
    assert!(run_and_count(&mut tracer, "true", &[]) > 3);
    tracer.unfollow(std::process::id()).unwrap();
    tracer.unfollow(std::process::id()).unwrap();
    assert_eq!(run_and_count(&mut tracer, "true", &[]), 0);
    let host = TracerOptions {
        scope: TracerScope::Host,
        ..TracerOptions::default()
    };
    assert!(run_and_count(&mut load(&host).unwrap(), "true", &[]) > 3);
}

#[test]
fn processes_of_another_pid_namespace_have_our_numbers() {
    let Some(mut tracer) = load(&TracerOptions::default()) else {
        return;
    };
    tracer.follow(std::process::id(), StackMode::None).unwrap();
    let mut child = Command::new("unshare")
        .args(["--pid", "--fork", "true"])
        .spawn()
        .unwrap();
    let status = child.wait().unwrap();
    if !status.success() {
        testkit::skip("no pid namespaces");
        return;
    }
    let mut inner = None;
    let mut executed = Vec::new();
    tracer
        .drain(&mut |event| match event.what {
            Occurrence::Forked { child: pid, .. } if event.pid == child.id() => inner = Some(pid),
            Occurrence::Executed { .. } => executed.push(event.pid),
            _ => {}
        })
        .unwrap();
    assert!(
        inner.is_some_and(|pid| pid > 1 && executed.contains(&pid)),
        "{inner:?} {executed:?}"
    );
}

#[test]
fn loading_takes_little_of_the_processor() {
    if load(&TracerOptions::default()).is_none() {
        return;
    }
    // Time of the processor, which other tests do not change.
    let spent = || {
        let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(
            usage.tv_sec.unsigned_abs(),
            usage.tv_nsec.try_into().unwrap(),
        )
    };
    let best = (0..5).map(|_| {
        let before = spent();
        let tracer = load(&TracerOptions::default());
        let spent = spent() - before;
        drop(tracer);
        spent
    });
    let best = best.min().unwrap();
    eprintln!("loaded in {best:?}");
    assert!(best < Duration::from_millis(150), "{best:?}");
}

#[test]
fn a_close_while_another_thread_reads_is_reported() {
    let Some(mut tracer) = load(&TracerOptions::default()) else {
        return;
    };
    tracer.follow(std::process::id(), StackMode::None).unwrap();
    // The reader is inside its call when its state says so.
    let script = "
import os, socket, threading, time
a, b = socket.socketpair()
thread = threading.Thread(target=lambda: os.read(a.fileno(), 1))
thread.start()
def state():
    text = open(f'/proc/self/task/{thread.native_id}/stat').read()
    call = open(f'/proc/self/task/{thread.native_id}/syscall').read()
    return text.rpartition(')')[2].split()[0] == 'S' and call.startswith('0 0x')
while not state(): time.sleep(0.001)
spare = os.dup(b.fileno())
os.close(spare)
print(a.fileno(), thread.native_id)
os.close(a.detach())
b.send(b'x')
";
    let output = Command::new("python3")
        .args(["-c", script])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut words = text.split_whitespace().map(|word| word.parse().unwrap());
    let (fd, inside) = (words.next().unwrap(), words.next().unwrap());
    let mut found = Vec::new();
    tracer
        .drain(&mut |event| {
            if matches!(event.what, Occurrence::ClosedInUse { .. }) {
                assert_ne!(event.stack, 0);
                found.push(event.what);
            }
        })
        .unwrap();
    assert_eq!(
        found,
        [Occurrence::ClosedInUse {
            fd,
            inside,
            call: 0
        }]
    );
}
