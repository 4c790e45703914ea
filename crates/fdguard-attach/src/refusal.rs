//! Why a process cannot be entered.

/// Found before anything happens to the process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It has ended.
    #[error("no such process")]
    Gone,
}
