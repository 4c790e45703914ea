//! A build without the tracer: the report has no lines.

use fdguard_core::Pid;
use fdguard_core::evidence::Evidence;
use fdguard_core::rule::RuleSettings;
use fdguard_diagnose::doctor::DoctorStep;

use crate::cli::DoctorArgs;

/// Stands for a trace that there is not.
#[derive(Debug)]
pub(super) struct DoctorTrace;

#[expect(
    clippy::unused_self,
    clippy::unnecessary_wraps,
    reason = "as in a build with the tracer"
)]
impl DoctorTrace {
    pub(super) fn start(_: &DoctorArgs, _: &[Pid]) -> anyhow::Result<Self> {
        Ok(Self)
    }

    pub(super) fn note(&self, _: DoctorStep<'_>) {}

    pub(super) fn finish(self, _: &mut Evidence, _: &RuleSettings) -> anyhow::Result<()> {
        Ok(())
    }
}
