//! Explains why descriptors of a Go program have no line.

use std::path::PathBuf;

use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::{Gap, Text};
use fdguard_trace::{GO, TracedProgram};

/// Names the gap, unless the tracer did. Without a finding that lacks its line there is nothing to
/// explain.
pub(super) fn explain(diagnosis: &mut Diagnosis) {
    let lacks_line = |pid: u32| {
        let mut findings = diagnosis.findings.iter();
        findings.any(|one| one.pid == pid && one.class.is_some() && one.origin.is_none())
    };
    let process = &diagnosis.process;
    let is_told = diagnosis.gaps.iter().any(|gap| gap.why == GO);
    let is_told = is_told || diagnosis.coverage.backend == "ebpf";
    if is_told || !lacks_line(process.pid) || !is_go(process) {
        return;
    }
    let what = format!(
        "the lines that opened descriptors of {}",
        process.comm.to_lossy()
    );
    let remedy = "run it as root, or with CAP_BPF and CAP_PERFMON: then the kernel traces it; or run fdguard watch PID for class, target and rate";
    diagnosis.gaps.push(Gap::new(what, GO, remedy));
}

fn is_go(process: &fdguard_core::snapshot::Process) -> bool {
    let paths = process.exe.iter().chain(process.cmdline.first());
    let mut paths = paths.filter_map(Text::as_str).map(PathBuf::from);
    paths.any(|path| TracedProgram::is_go(&path))
}
