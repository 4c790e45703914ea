//! `/proc/PID/stat`: the command stands in parentheses, whatever it holds.

use fdguard_proc::stat::ProcStat;

pub(crate) fn run(bytes: &[u8]) {
    if let Some(stat) = ProcStat::parse(bytes) {
        let shown = [b"(", stat.comm, b")"].concat();
        assert!(bytes.windows(shown.len()).any(|part| part == shown));
        assert!(stat.is_zombie() || !stat.has_ended());
        assert_eq!(stat.key(7).start_ticks, stat.start_ticks);
    }
}
