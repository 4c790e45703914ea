//! Messages of a runtime's agent about descriptors: the stack of the code that requested them.
//!
//! The agent asks whether a file exists whose name begins with [`CALL`]. No such file exists, but
//! the answer is yes while the library records. The name is the message: the target, then one line
//! per frame, innermost first, as `file TAB line TAB function`. Targets are a number; `closing` and
//! a number for the code that closes it; `starting` for the child that the calling thread starts
//! next; `inotify` and `opendir` for descriptors without a number in the runtime: the oldest one
//! without a message; `thread` for everything that the calling thread opened without a message.

use fdguard_wire::{
    Area, EventKind, EventRecord, FrameRecord, Frames, OpenCall, OpenRecord, RuntimeLanguage,
    TableMapping,
};

use crate::language::{SEED, hash_of};
use crate::{children, close_sweep, real, thread};

/// The prefix of a message.
pub(crate) const CALL: &[u8] = b"/\x01fdguard/node/";

/// Handles a message, given without [`CALL`].
pub(crate) fn handle(mapping: &TableMapping, area: &impl Area, message: &[u8]) {
    let mut lines = message.splitn(2, |byte| *byte == b'\n');
    let (Some(whom), Some(frames)) = (lines.next(), lines.next()) else {
        return;
    };
    let stack = || {
        mapping.stack(area, hash_of(SEED, frames), |list| {
            write(mapping, area, frames, list);
        })
    };
    if let Some(fd) = number(whom) {
        restack(mapping, area, fd, stack());
        return;
    }
    if let Some(fd) = whom.strip_prefix(b"closing ").and_then(number) {
        close_sweep::expect(fd, stack());
        return;
    }
    if whom == b"starting" {
        children::expect(stack());
        return;
    }
    let tid = thread::tid();
    let untold = |fd: &u32, is_meant: fn(&OpenRecord, u32) -> bool| {
        mapping.open_record(area, *fd).is_some_and(|birth| {
            birth.forks == 0 && is_meant(&birth, tid) && !mapping.is_language(birth.stack)
        })
    };
    let age = |fd: &u32| {
        mapping
            .open_record(area, *fd)
            .map_or(u64::MAX, |birth| birth.ns)
    };
    let mut all = 0..mapping.numbers();
    match whom {
        b"thread" => {
            let stack = stack();
            for fd in all.filter(|fd| untold(fd, |birth, tid| birth.tid == tid)) {
                restack(mapping, area, fd, stack);
            }
        }
        b"inotify" => {
            let is_meant =
                |birth: &OpenRecord, tid| birth.call == OpenCall::Inotify && birth.tid == tid;
            if let Some(fd) = all.find(|fd| untold(fd, is_meant)) {
                restack(mapping, area, fd, stack());
            }
        }
        b"opendir" => {
            let meant = all.filter(|fd| untold(fd, |birth, _| birth.call == OpenCall::Opendir));
            if let Some(fd) = meant.min_by_key(age) {
                restack(mapping, area, fd, stack());
            }
        }
        _ => {}
    }
}

fn write(mapping: &TableMapping, area: &impl Area, frames: &[u8], list: &mut Frames<'_>) {
    for frame in frames.split(|byte| *byte == b'\n') {
        let mut parts = frame.splitn(3, |byte| *byte == b'\t');
        let (Some(file), Some(line), Some(function)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let hash = hash_of(hash_of(SEED, file), function);
        if let Some(text) = mapping.text(area, hash, || (file, function)) {
            list.push(FrameRecord::Language {
                tongue: RuntimeLanguage::Node,
                text,
                line: number(line).unwrap_or(0),
            });
        }
    }
}

fn restack(mapping: &TableMapping, area: &impl Area, fd: u32, stack: u32) {
    if !mapping.restack(area, fd, stack) {
        return;
    }
    let event = EventRecord {
        kind: EventKind::Reassigned,
        code: 0,
        errno: 0,
        tid: thread::tid(),
        ns: real::now(),
        fd,
        stack,
        more: [0; 2],
    };
    mapping.write_event(area, mapping.ticket(), &event);
}

fn number(digits: &[u8]) -> Option<u32> {
    let mut number = 0_u32;
    for digit in digits {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number = number.checked_mul(10)?.checked_add(u32::from(digit))?;
    }
    (!digits.is_empty()).then_some(number)
}

#[cfg(test)]
mod tests {
    use fdguard_wire::{Area, OpenCall, OpenRecord, TableMapping};

    use super::{handle, number};
    use crate::thread;

    struct Everywhere;

    impl Area for Everywhere {
        fn is_backed(&self, _: usize, _: usize) -> bool {
            true
        }
    }

    fn open(mapping: &TableMapping, fd: u32, how: OpenCall, ns: u64) {
        let birth = OpenRecord {
            stack: 0,
            tid: thread::tid(),
            ns,
            call: how,
            forks: 0,
        };
        mapping.open(&Everywhere, fd, &birth);
    }

    fn told(mapping: &TableMapping) -> Vec<u32> {
        let is_told =
            |fd: &u32| mapping.is_language(mapping.open_record(&Everywhere, *fd).unwrap().stack);
        (3..mapping.numbers()).filter(is_told).collect()
    }

    #[test]
    fn whom_a_message_means() {
        static MAPPING: TableMapping = TableMapping::new();
        let say = |whom: &str| {
            let message = format!("{whom}\n/app/a.js\t3\tserve\n/app/b.js\t9\tmain");
            handle(&MAPPING, &Everywhere, message.as_bytes());
        };
        MAPPING.begin(1, 1, 1);
        open(&MAPPING, 3, OpenCall::Open, 10);
        open(&MAPPING, 4, OpenCall::Opendir, 30);
        open(&MAPPING, 5, OpenCall::Opendir, 20);
        open(&MAPPING, 6, OpenCall::Inotify, 20);
        open(&MAPPING, 7, OpenCall::Epoll, 20);
        for nobody in ["", "9", "-1", "99999999999", "somebody"] {
            say(nobody);
        }
        handle(&MAPPING, &Everywhere, b"3");
        assert_eq!(told(&MAPPING), []);
        say("3");
        assert_eq!(told(&MAPPING), [3]);
        say("opendir");
        assert_eq!(told(&MAPPING), [3, 5], "the oldest");
        say("opendir");
        say("inotify");
        assert_eq!(told(&MAPPING), [3, 4, 5, 6]);
        say("thread");
        assert_eq!(told(&MAPPING), [3, 4, 5, 6, 7]);
        let stack = |fd| MAPPING.open_record(&Everywhere, fd).unwrap().stack;
        assert_eq!(stack(3), stack(7));
    }

    #[test]
    fn numbers_are_digits_that_fit() {
        assert_eq!(number(b"4294967295"), Some(u32::MAX));
        for text in ["", "4294967296", "1x", "-1", " 1"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }
}
