//! Reads the calling thread's stack without ever faulting, even if an unwind rule is wrong.

#![expect(unsafe_code, reason = "reads memory by address")]

use crate::{real, sys, thread};

const PAGE: usize = 4096;
/// The largest range that is probed page by page when a thread is first seen.
const PAGES: usize = 512;

/// The parts of the stack that may be read.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Known to be readable for as long as the thread lives.
    low: usize,
    high: usize,
    /// A page that was probed, if the stack is not the thread's own.
    page: usize,
}

impl Memory {
    /// No part of it.
    pub(crate) const NONE: Self = Self {
        low: 0,
        high: 0,
        page: 0,
    };

    /// For a thread with this stack pointer.
    #[inline]
    pub(crate) fn at(sp: usize) -> Self {
        let (low, high) = own_stack(sp);
        Self { low, high, page: 0 }
    }

    /// The word at an address, if it can be read.
    #[inline]
    pub(crate) fn word(&mut self, address: usize) -> Option<usize> {
        if address & 7 != 0 {
            return None;
        }
        let is_known = address >= self.low && address < self.high;
        if !is_known && !self.is_tried(address) {
            return None;
        }
        // SAFETY: the word is in a page that the kernel just read from, or in this thread's own
        // stack above its stack pointer, which stays mapped while the thread runs this code.
        Some(unsafe { (address as *const usize).read_volatile() })
    }

    #[cold]
    #[inline(never)]
    fn is_tried(&mut self, address: usize) -> bool {
        let page = address & !(PAGE - 1);
        if page == self.page {
            return true;
        }
        if page == 0 || !sys::is_readable(page) {
            return false;
        }
        self.page = page;
        true
    }
}

/// The readable part of the thread's own stack around `sp`; empty if it runs on another one.
#[inline]
fn own_stack(sp: usize) -> (usize, usize) {
    let start = sp & !(PAGE - 1);
    let (low, top) = thread::stack();
    if top != 0 && start >= low && start < top {
        return (low, top);
    }
    find_stack(start, low, top)
}

#[cold]
#[inline(never)]
fn find_stack(start: usize, low: usize, top: usize) -> (usize, usize) {
    if top != 0 && start < low && is_whole(start, low) {
        thread::know_stack(start, top);
        return (start, top);
    }
    // The C library keeps a thread's control block above its stack, with a guard page below: what
    // can be read without a gap from here to there is this stack. The first thread's stack ends
    // where the loader says.
    for top in [thread::pointer(), real::stack_end()] {
        let end = top & !7;
        if start < end && is_whole(start, end) {
            thread::know_stack(start, end);
            return (start, end);
        }
    }
    (0, 0)
}

fn is_whole(from: usize, to: usize) -> bool {
    if to.wrapping_sub(from) > PAGES * PAGE {
        return false;
    }
    let mut page = from;
    while page < to {
        if !sys::is_readable(page) {
            return false;
        }
        page += PAGE;
    }
    true
}
