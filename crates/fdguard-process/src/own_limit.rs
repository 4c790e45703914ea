//! fdguard's own soft limit of descriptors: raised to have room to work.

use std::io;

use fdguard_core::snapshot::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than most programs other than databases need.
pub const ENOUGH: u64 = 4096;

/// fdguard's limits, which a program inherits.
#[must_use]
pub fn read() -> Limits {
    let limit = getrlimit(Resource::Nofile);
    Limits {
        soft: limit.current,
        hard: limit.maximum,
    }
}

/// The soft limit to set for this request: never below the current one, never above the hard limit;
/// `None` to leave it unchanged.
#[must_use]
pub fn raised(wanted: u64, before: Limits) -> Option<u64> {
    let wanted = wanted.min(before.hard.unwrap_or(u64::MAX));
    before.soft.filter(|soft| wanted > *soft).map(|_| wanted)
}

/// Raises fdguard's own soft limit and returns the new one; `None` if unchanged.
pub fn raise_own(wanted: u64) -> io::Result<Option<u64>> {
    let before = read();
    let Some(soft) = raised(wanted, before) else {
        return Ok(None);
    };
    let limit = Rlimit {
        current: Some(soft),
        maximum: before.hard,
    };
    setrlimit(Resource::Nofile, limit)?;
    Ok(Some(soft))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(soft: Option<u64>, hard: Option<u64>) -> Limits {
        Limits { soft, hard }
    }

    #[test]
    fn r28_a_limit_is_raised_as_far_as_it_may_be_and_never_lowered() {
        assert_eq!(raised(4096, limits(Some(1024), Some(524_288))), Some(4096));
        assert_eq!(raised(4096, limits(Some(256), Some(1024))), Some(1024));
        assert_eq!(raised(4096, limits(Some(256), None)), Some(4096));
        assert_eq!(raised(100, limits(Some(1024), Some(4096))), None);
        assert_eq!(raised(4096, limits(None, None)), None);
    }

    #[test]
    fn r28_our_own_is_really_raised() {
        let hard = read().hard;
        let low = Rlimit {
            current: Some(100),
            maximum: hard,
        };
        setrlimit(Resource::Nofile, low).unwrap();
        assert_eq!(raise_own(200).unwrap(), Some(200));
        assert_eq!(read(), limits(Some(200), hard));
        assert_eq!(raise_own(150).unwrap(), None);
        assert_eq!(read().soft, Some(200));
    }
}
