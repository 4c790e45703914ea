//! Waits until a writer closes one of the files. The lease decides whether it was the last writer.

use std::cell::{Cell, OnceCell};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};

use crate::dir::Dir;

/// Mappings, rings and locks end without an event.
const PAUSE: Duration = Duration::from_millis(20);
/// The kernel reports a close before it decrements its writer count.
const AFTER_EVENT: Duration = Duration::from_millis(1);

/// Wakes the archive; if the kernel has no more watches, only by timer. Created when the first job
/// waits, because removing it takes the kernel many milliseconds.
#[derive(Debug)]
pub(super) struct Waker {
    inotify: OnceCell<Option<OwnedFd>>,
    pause: Cell<Duration>,
}

impl Waker {
    pub(super) fn new() -> Self {
        Self {
            inotify: OnceCell::new(),
            pause: Cell::new(PAUSE),
        }
    }

    /// Watches a file; the number is for [`Self::forget`].
    pub(super) fn watch(&self, dir: &Dir, name: &OsStr) -> Option<i32> {
        // Through its open directory, whatever that path refers to now. A link is not followed.
        let path = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
        let path = Path::new(&path).join(name);
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::DONT_FOLLOW;
        let make = || inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        let inotify = self.inotify.get_or_init(make).as_ref()?;
        inotify::add_watch(inotify, path, flags).ok()
    }

    /// Stops watching it.
    pub(super) fn forget(&self, watch: i32) {
        if let Some(Some(inotify)) = self.inotify.get() {
            // On error, the watch was already removed with its file.
            let _ = inotify::remove_watch(inotify, watch);
        }
    }

    /// Waits for an event, the timer, or the deadline.
    pub(super) fn wait(&self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        let most = self.pause.get().min(left);
        let Some(Some(inotify)) = self.inotify.get() else {
            std::thread::sleep(most);
            return;
        };
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(most.subsec_nanos()),
        };
        let mut asked = [PollFd::new(inotify, PollFlags::IN)];
        let woken = rustix::event::poll(&mut asked, Some(&time)).is_ok_and(|ready| ready > 0);
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(inotify, &mut buffer);
        while woken && reader.next().is_ok() {}
        self.pause.set(if woken { AFTER_EVENT } else { PAUSE });
    }
}
