//! `/proc/PID/smaps`, `smaps_rollup` and `statm`.

use fdguard_proc::maps::mappings;
use fdguard_proc::{maps, smaps, statm};

pub(crate) fn run(bytes: &[u8]) {
    let regions = smaps::regions(bytes);
    assert!(regions.len() <= mappings(bytes).count());
    assert!(smaps::flagged(bytes, b"dc").count() <= maps::regions(bytes).count());
    assert!(smaps::proportional(bytes).is_none_or(|share| share % 1024 == 0));
    assert!(statm::resident(bytes, 4096).is_none_or(|size| size % 4096 == 0));
}
