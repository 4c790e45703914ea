//! The files of the host: `/proc/sys/fs/file-nr`, `/proc/loadavg`, `/proc/meminfo` and
//! `/proc/stat`.

use fdguard_proc::{file_nr, loadavg, meminfo, system_stat};

pub(crate) fn run(bytes: &[u8]) {
    let (_used, most) = file_nr::used_and_most(bytes);
    assert!(most.is_none() || bytes.len() >= 5, "three words");
    assert!(meminfo::available(bytes).is_none_or(|size| size % 1024 == 0));
    assert!(loadavg::tasks(bytes).is_none() || bytes.contains(&b'/'));
    assert!(system_stat::boot_time(bytes).is_none_or(|time| time >= 0));
}
