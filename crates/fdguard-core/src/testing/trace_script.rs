//! Scripted traces, step by step, with named sites.

use crate::event::{CloseCall, Errno, FdCall, OpenCall, StackId, Tid, TraceEvent, What};
use crate::origin::{Frame, Language, Stack};
use crate::{Class, Fd, FileId, TraceKey};

/// The process that a trace begins with.
pub(crate) const MAIN: TraceKey = process(1000);

pub(crate) const fn process(pid: u32) -> TraceKey {
    TraceKey { pid, began: 1 }
}

/// A trace.
#[derive(Debug, Default)]
pub(crate) struct TraceScript {
    pub(crate) events: Vec<TraceEvent>,
    places: Vec<String>,
    process: Option<TraceKey>,
    at: u64,
}

/// Builds a trace.
pub(crate) fn traced(tell: impl FnOnce(&mut TraceScript)) -> TraceScript {
    let mut traced = TraceScript::default();
    tell(&mut traced);
    traced
}

impl TraceScript {
    /// One event by a thread at a site, a microsecond after the last.
    pub(crate) fn add(&mut self, thread: Tid, place: &str, what: What) {
        self.at += 1000;
        let known = self.places.iter().position(|known| known == place);
        let stack = known.unwrap_or_else(|| {
            self.places.push(place.to_owned());
            self.places.len() - 1
        });
        self.events.push(TraceEvent {
            process: self.process.unwrap_or(MAIN),
            thread,
            at: self.at,
            stack: Some(StackId(u32::try_from(stack).unwrap())),
            what,
        });
    }

    /// The following events are in this process.
    pub(crate) fn switch(&mut self, to: TraceKey) {
        self.process = Some(to);
    }

    pub(crate) fn open(&mut self, thread: Tid, place: &str, fd: Fd, call: OpenCall, class: Class) {
        let open = What::Open {
            fd,
            call,
            class: Some(class),
            file: None,
            cloexec: true,
        };
        self.add(thread, place, open);
    }

    pub(crate) fn socket(&mut self, thread: Tid, place: &str, fd: Fd) {
        let class = "tcp:UNBOUND".parse().unwrap();
        self.open(thread, place, fd, OpenCall::Socket, class);
    }

    pub(crate) fn file(&mut self, thread: Tid, place: &str, fd: Fd) {
        self.open(thread, place, fd, OpenCall::Open, Class::Regular);
    }

    /// A file with an inode number.
    pub(crate) fn inode(&mut self, thread: Tid, place: &str, fd: Fd, ino: u64) {
        let open = What::Open {
            fd,
            call: OpenCall::Open,
            class: Some(Class::Regular),
            file: Some(FileId { mnt: 1, ino }),
            cloexec: true,
        };
        self.add(thread, place, open);
    }

    pub(crate) fn close(&mut self, thread: Tid, place: &str, fd: Fd) {
        self.fail_close(thread, place, fd, None);
    }

    /// Its close has returned.
    pub(crate) fn closed(&mut self, thread: Tid, place: &str, fd: Fd) {
        self.add(thread, place, What::CloseReturned { fd });
    }

    pub(crate) fn bad_close(&mut self, thread: Tid, place: &str, fd: Fd) {
        self.fail_close(thread, place, fd, Some(Errno::Ebadf));
    }

    pub(crate) fn fail_close(&mut self, thread: Tid, place: &str, fd: Fd, errno: Option<Errno>) {
        let call = CloseCall::Close;
        self.add(thread, place, What::Close { fd, call, errno });
    }

    /// `dup2` onto this number.
    pub(crate) fn dup2(&mut self, thread: Tid, place: &str, fd: Fd, class: Class) {
        let (call, errno) = (CloseCall::Dup2, None);
        self.add(thread, place, What::Close { fd, call, errno });
        self.open(thread, place, fd, OpenCall::Dup2, class);
    }

    pub(crate) fn enter(&mut self, thread: Tid, place: &str, fd: Fd, call: FdCall) {
        self.add(thread, place, What::Enter { fd, call });
    }

    pub(crate) fn leave(&mut self, thread: Tid, place: &str) {
        self.add(thread, place, What::Leave);
    }

    pub(crate) fn call(&mut self, thread: Tid, place: &str, fd: Fd, call: FdCall) {
        self.fail(thread, place, fd, call, None);
    }

    pub(crate) fn fail(
        &mut self,
        thread: Tid,
        place: &str,
        fd: Fd,
        call: FdCall,
        errno: Option<Errno>,
    ) {
        let bytes = Vec::new();
        let what = What::Use {
            fd,
            call,
            bytes,
            errno,
        };
        self.add(thread, place, what);
    }

    pub(crate) fn write(&mut self, thread: Tid, place: &str, fd: Fd, bytes: &[u8]) {
        let what = What::Use {
            fd,
            call: FdCall::Write,
            bytes: bytes.to_vec(),
            errno: None,
        };
        self.add(thread, place, what);
    }

    pub(crate) fn lock(
        &mut self,
        thread: Tid,
        place: &str,
        fd: Fd,
        range: Option<(u64, u64)>,
        taken: bool,
    ) {
        let file = None;
        let what = What::Lock {
            fd,
            file,
            range,
            taken,
        };
        self.add(thread, place, what);
    }

    /// A call begins that changes a lock.
    pub(crate) fn locking(&mut self, thread: Tid, place: &str, fd: Fd) {
        self.add(thread, place, What::Locking { fd });
    }

    /// The stack of an id: a frame with the name of the site, and one for each caller after a `<`.
    /// What follows a `#` is not shown.
    pub(crate) fn resolve(&self, stack: StackId) -> Stack {
        let at = usize::try_from(stack.0).ok();
        let place = at.and_then(|at| self.places.get(at));
        let shown = place.and_then(|place| place.split('#').next());
        let frame = |function: &str| Frame {
            file: Some("main.c".into()),
            function: Some(function.to_owned()),
            line: Some(1),
            module: None,
            language: Language::C,
        };
        shown.map_or_else(Vec::new, |shown| shown.split('<').map(frame).collect())
    }
}
