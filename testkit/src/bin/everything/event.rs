//! Descriptors to wait on: epoll with and without ghosts, counters, timers, signals, watches.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::inotify::{self, WatchFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use serde_json::json;
use testkit::{VictimReport, number, sys};

/// A number that no other descriptor of this victim uses.
const STAYS_FREE: i32 = 410;
const USED_AGAIN: i32 = 400;

pub(crate) fn open(report: &mut VictimReport, dir: &Path) -> io::Result<()> {
    counters(report)?;
    polls(report)?;
    ghost_at_a_free_number(report)?;
    ghost_at_a_number_used_again(report, dir)?;
    timers(report)?;
    let signals = [10, 12, 40, 64];
    report
        .hold("signalfd", "signalfd", sys::signalfd(&signals)?)?
        .with("signals", json!(signals));
    watchers(report, dir)
}

fn counters(report: &mut VictimReport) -> io::Result<()> {
    for (what, count, flags) in [
        ("eventfd", 3, EventfdFlags::CLOEXEC),
        ("eventfd, semaphore", 3, EventfdFlags::SEMAPHORE),
        ("eventfd, two digits", 0x12, EventfdFlags::CLOEXEC),
    ] {
        report
            .hold(what, "eventfd", eventfd(count, flags)?)?
            .with("count", count)
            .with("semaphore", flags.contains(EventfdFlags::SEMAPHORE));
    }
    Ok(())
}

fn polls(report: &mut VictimReport) -> io::Result<()> {
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut targets = Vec::new();
    for what in ["watched counter, first", "watched counter, second"] {
        let counter = eventfd(0, EventfdFlags::CLOEXEC)?;
        watch(&poll, &counter)?;
        targets.push(number(&counter));
        report.hold(what, "eventfd", counter)?.with("count", 0);
    }
    report
        .hold("epoll", "eventpoll", poll)?
        .with("watching", 2)
        .with("ghosts", 0)
        .with("targets", targets);
    let empty = epoll::create(CreateFlags::CLOEXEC)?;
    report
        .hold("epoll, empty", "eventpoll", empty)?
        .with("watching", 0)
        .with("ghosts", 0)
        .with("targets", json!([]));
    Ok(())
}

/// The registered number was closed, a duplicate keeps the thing alive, the number is free.
fn ghost_at_a_free_number(report: &mut VictimReport) -> io::Result<()> {
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    let kept = eventfd(0, EventfdFlags::CLOEXEC)?;
    let registered = rustix::io::fcntl_dupfd_cloexec(&kept, STAYS_FREE)?;
    let ghost = number(&registered);
    watch(&poll, &registered)?;
    drop(registered);
    let real = eventfd(0, EventfdFlags::CLOEXEC)?;
    watch(&poll, &real)?;
    let targets = [ghost, number(&real)];
    report.hold("what the ghost refers to", "eventfd", kept)?;
    report.hold("watched beside a ghost", "eventfd", real)?;
    report
        .hold("epoll with a ghost", "eventpoll", poll)?
        .with("watching", 2)
        .with("ghosts", 1)
        .with("targets", json!(targets))
        .with("ghost_fds", json!([ghost]));
    Ok(())
}

/// The registered number was closed and now is another file.
fn ghost_at_a_number_used_again(report: &mut VictimReport, dir: &Path) -> io::Result<()> {
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    let (read, write) = rustix::pipe::pipe()?;
    let registered = rustix::io::fcntl_dupfd_cloexec(&read, USED_AGAIN)?;
    let ghost = number(&registered);
    watch(&poll, &registered)?;
    drop(registered);
    let path = dir.join("in-place-of-a-ghost");
    let file = rustix::io::fcntl_dupfd_cloexec(File::create(&path)?, USED_AGAIN)?;
    if number(&file) != ghost {
        return Err(io::Error::other("the number was taken by somebody else"));
    }
    report.hold("pipe the ghost refers to, read end", "pipe", read)?;
    report.hold("pipe the ghost refers to, write end", "pipe", write)?;
    report
        .hold("file in place of a ghost", "regular", file)?
        .at(&path);
    report
        .hold(
            "epoll with a ghost at a number used again",
            "eventpoll",
            poll,
        )?
        .with("watching", 1)
        .with("ghosts", 1)
        .with("targets", json!([ghost]))
        .with("ghost_fds", json!([ghost]));
    Ok(())
}

fn watch(poll: &OwnedFd, target: impl AsFd) -> io::Result<()> {
    let data = EventData::new_u64(u64::from(number(&target)));
    Ok(epoll::add(poll, target, data, EventFlags::IN)?)
}

fn timers(report: &mut VictimReport) -> io::Result<()> {
    let span = |seconds| Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let cases = [
        ("timer, once", TimerfdClockId::Monotonic, 86400, 0),
        ("timer, repeating", TimerfdClockId::Boottime, 86400, 3600),
        ("timer, disarmed", TimerfdClockId::Realtime, 0, 0),
    ];
    for (what, clock, first, interval) in cases {
        let timer = timerfd_create(clock, TimerfdFlags::CLOEXEC)?;
        let setting = Itimerspec {
            it_interval: span(interval),
            it_value: span(first),
        };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &setting)?;
        let holding = report.hold(what, "timerfd", timer)?;
        holding.with("ticks", 0).with("interval", interval);
        if first == 0 {
            holding.with("remaining", 0);
        }
    }
    Ok(())
}

fn watchers(report: &mut VictimReport, dir: &Path) -> io::Result<()> {
    let watched = dir.join("watched");
    fs::create_dir(&watched)?;
    let watcher = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&watcher, dir, WatchFlags::DELETE_SELF)?;
    inotify::add_watch(&watcher, &watched, WatchFlags::CREATE)?;
    report
        .hold("inotify", "inotify", watcher)?
        .with("watches", 2);

    let path = CString::new(watched.as_os_str().as_bytes())?;
    let marked = sys::fanotify().and_then(|group| {
        sys::fanotify_mark(&group, &path)?;
        Ok(group)
    });
    if let Some(holding) = report.hold_if_given("fanotify", "fanotify", marked)? {
        holding.with("watches", 1);
    }
    Ok(())
}
