//! `/proc/PID/task/TID/children`.

/// The children that a thread started, from a list that is read in pieces. It allocates nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChildPids {
    number: Option<u32>,
}

impl ChildPids {
    /// Calls `act` for each pid that ends in this piece.
    pub fn take(&mut self, piece: &[u8], act: &mut dyn FnMut(u32)) {
        for byte in piece {
            match byte {
                b'0'..=b'9' => {
                    let digit = u32::from(byte - b'0');
                    let number = self.number.unwrap_or(0);
                    self.number = Some(number.wrapping_mul(10).wrapping_add(digit));
                }
                _ => self.finish(act),
            }
        }
    }

    /// Calls `act` for a pid at the end of the list.
    pub fn finish(&mut self, act: &mut dyn FnMut(u32)) {
        if let Some(number) = self.number.take() {
            act(number);
        }
    }
}

/// All pids of a whole list.
#[must_use]
pub fn pids(bytes: &[u8]) -> Vec<u32> {
    let mut found = Vec::new();
    let mut list = ChildPids::default();
    list.take(bytes, &mut |pid| found.push(pid));
    list.finish(&mut |pid| found.push(pid));
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ChildPids, pids};

    #[test]
    fn pids_stand_between_spaces() {
        assert_eq!(pids(b"12 345 6 "), [12, 345, 6]);
        assert_eq!(pids(b""), [0_u32; 0]);
        assert_eq!(pids(b"7"), [7]);
    }

    proptest! {
        #[test]
        fn pieces_give_the_same_pids_as_the_whole(bytes: Vec<u8>, wanted: Vec<u32>, size in 1..9_usize) {
            let text: String = wanted.iter().map(|pid| format!("{pid} ")).collect();
            prop_assert_eq!(pids(text.as_bytes()), wanted);
            let mut found = Vec::new();
            let mut list = ChildPids::default();
            for piece in bytes.chunks(size) {
                list.take(piece, &mut |pid| found.push(pid));
            }
            list.finish(&mut |pid| found.push(pid));
            prop_assert_eq!(found, pids(&bytes));
        }
    }
}
