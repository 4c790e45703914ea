//! The ways to read processes.

use fdguard_core::{Gap, Pid, Snapshot};

use crate::lsof::Lsof;
use crate::{Error, Options, Probe};

/// Reads processes into snapshots. What a reader cannot see is a gap in them.
///
/// [`Probe`] reads `/proc`, and the tables of many processes with BPF ([`crate::Depth`]); [`Lsof`]
/// runs the program of that name. A reader for another system is one more implementation.
pub trait ProcessReader {
    /// The descriptors of several processes, in the requested order. Each has its own outcome.
    fn snapshots(&self, pids: &[Pid], options: Options) -> Vec<Result<Snapshot, Error>>;

    /// The descriptors of one process.
    fn snapshot(&self, pid: Pid, options: Options) -> Result<Snapshot, Error> {
        let only = self.snapshots(&[pid], options).pop();
        only.unwrap_or(Err(Error::NoSuchProcess(pid)))
    }
}

impl ProcessReader for Probe {
    fn snapshots(&self, pids: &[Pid], options: Options) -> Vec<Result<Snapshot, Error>> {
        self.snapshots(pids, options)
    }
}

impl ProcessReader for Lsof {
    fn snapshots(&self, pids: &[Pid], _: Options) -> Vec<Result<Snapshot, Error>> {
        self.snapshots(pids)
    }
}

/// Separates what was read from what was not, which is a gap. What `is_expected` is neither.
///
/// # Errors
///
/// The first error, if nothing was read.
pub fn read_or_gaps(
    results: Vec<Result<Snapshot, Error>>,
    is_expected: impl Fn(&Error) -> bool,
) -> Result<(Vec<Snapshot>, Vec<Gap>), Error> {
    let mut snapshots = Vec::new();
    let mut gaps = Vec::new();
    let mut first_error = None;
    for result in results {
        match result {
            Ok(snapshot) => snapshots.push(snapshot),
            Err(error) if is_expected(&error) => {}
            Err(error) => {
                gaps.push(Gap::new(
                    error.to_string(),
                    "the process could not be read",
                    "run fdguard top to list the processes",
                ));
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        Some(error) if snapshots.is_empty() => Err(error),
        _ => Ok((snapshots, gaps)),
    }
}

#[cfg(test)]
mod tests {
    use super::read_or_gaps;
    use crate::Error;

    #[test]
    fn what_is_expected_is_neither_a_gap_nor_an_error() {
        let pid = 7;
        let results = || vec![Err(Error::Vanished(pid)), Err(Error::NoSuchProcess(pid))];
        let is_expected = |error: &Error| matches!(error, Error::Vanished(_));
        let first = read_or_gaps(results(), is_expected).unwrap_err();
        assert!(matches!(first, Error::NoSuchProcess(_)));
        assert_eq!(read_or_gaps(results(), |_| true).unwrap(), (vec![], vec![]));
        assert!(read_or_gaps(results(), |_| false).is_err());
    }
}
