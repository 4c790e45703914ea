//! A fixed-size list on the stack. It is not cleared, because clearing costs more than filling it.

#![expect(unsafe_code, reason = "room that nobody has written to yet")]

use core::mem::MaybeUninit;

/// Up to `N` items.
#[derive(Clone, Copy)]
pub(crate) struct List<T: Copy, const N: usize> {
    room: [MaybeUninit<T>; N],
    /// The number of items written.
    used: usize,
}

impl<T: Copy, const N: usize> List<T, N> {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self {
            room: [const { MaybeUninit::uninit() }; N],
            used: 0,
        }
    }

    /// Appends; false if the list is full.
    #[inline]
    pub(crate) fn push(&mut self, item: T) -> bool {
        let Some(place) = self.room.get_mut(self.used) else {
            return false;
        };
        place.write(item);
        self.used += 1;
        true
    }

    #[inline]
    pub(crate) fn items(&self) -> &[T] {
        let first = self.room.as_ptr().cast();
        // SAFETY: `push` has written this many, and `truncate` never raises the number.
        unsafe { core::slice::from_raw_parts(first, self.used) }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Keeps the first `length` items.
    #[inline]
    pub(crate) fn truncate(&mut self, length: usize) {
        self.used = self.used.min(length);
    }
}

impl<T: Copy, const N: usize> core::fmt::Debug for List<T, N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("List")
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::List;

    #[test]
    fn what_is_too_much_is_refused_and_the_rest_stays() {
        let mut list = List::<u32, 2>::new();
        assert_eq!(list.items(), []);
        assert!(list.push(7) && list.push(8) && !list.push(9));
        assert_eq!(list.items(), [7, 8]);
        list.truncate(5);
        assert_eq!(list.len(), 2);
        list.truncate(1);
        assert_eq!(list.items(), [7]);
        assert!(list.push(6));
        assert_eq!(list.items(), [7, 6]);
    }
}
