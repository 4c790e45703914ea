//! Frees reserved numbers in batches, which costs little more than freeing one.

use core::ffi::c_int;

use super::kernel;
use super::number::{self, Age, Phase};

/// The most numbers in a batch.
pub(super) const MOST: u32 = 16;
const NONE: c_int = -1;

/// Quarantined numbers that are freed together.
pub(super) struct Batch {
    graves: [(c_int, Age); MOST as usize],
    used: usize,
}

impl Batch {
    pub(super) fn new() -> Self {
        Self {
            graves: [(NONE, 0); MOST as usize],
            used: 0,
        }
    }

    /// Adds a number, if its state still matches the ring's entry.
    pub(super) fn add(&mut self, entry: u64) {
        if entry == 0 {
            return;
        }
        let fd = c_int::try_from(entry >> 32).unwrap_or(NONE);
        let age = (entry & 0xffff_ffff) as Age;
        if number::step(fd, age, Phase::PutOff, Phase::Released) {
            // Its owner never left its call.
            kernel::close(fd);
            number::step(fd, age, Phase::Released, Phase::Free);
        } else if let Some(place) = self.graves.get_mut(self.used)
            && number::step(fd, age, Phase::Buried, Phase::Released)
        {
            *place = (fd, age);
            self.used += 1;
        }
    }

    /// Closes them, neighbours together. Code that bypasses the C library may have closed one and
    /// opened something else.
    pub(super) fn free(&self) {
        let graves = self.graves.get(..self.used).unwrap_or(&[]);
        let dead = kernel::dead(graves.iter().map(|(fd, _)| *fd));
        let is_dead = |at: usize| dead >> at & 1 == 1;
        let mut at = 0;
        while let Some((first, _)) = graves.get(at) {
            let mut last = *first;
            let mut next = at + 1;
            while is_dead(at)
                && is_dead(next)
                && graves.get(next).is_some_and(|(fd, _)| *fd == last + 1)
            {
                last += 1;
                next += 1;
            }
            if is_dead(at) {
                kernel::close_all(*first, last);
            }
            at = next;
        }
        for (fd, age) in graves {
            number::step(*fd, *age, Phase::Released, Phase::Free);
        }
    }
}
