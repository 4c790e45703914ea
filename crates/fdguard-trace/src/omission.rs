//! Gaps for programs that ran without the library.

use fdguard_core::Gap;
use fdguard_core::units::counted;
use fdguard_wire::Omission;

use crate::BlindReason;

/// Each reason by its index in the library's counters.
const REASONS: [(Omission, BlindReason); Omission::KINDS] = [
    (Omission::OtherLoader, BlindReason::OtherLoader),
    (Omission::OtherMachine, BlindReason::OtherMachine),
    (Omission::Sanitizer, BlindReason::Sanitizer),
    (Omission::Unreachable, BlindReason::Unreachable),
    (Omission::Privileged, BlindReason::Privileged),
];

/// A gap for each reason that occurred.
pub(crate) fn gaps(counts: &[u64; Omission::KINDS]) -> Vec<Gap> {
    let told = REASONS.iter().filter_map(|(why, blind)| {
        let count = counts.get(*why as usize).filter(|count| **count > 0)?;
        let programs = counted(*count, "program");
        let what = format!("the descriptors of {programs} that ran without fdguard's library");
        Some(Gap::new(what, blind.why(), blind.remedy()))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::{REASONS, gaps};

    #[test]
    fn each_reason_is_told_once_with_its_count() {
        assert_eq!(gaps(&[0; 5]), []);
        let told = gaps(&[2, 0, 1, 0, 0]);
        let whats: Vec<&str> = told.iter().map(|gap| gap.what.as_str()).collect();
        let expected = [
            "the descriptors of 2 programs that ran without fdguard's library",
            "the descriptors of 1 program that ran without fdguard's library",
        ];
        assert_eq!(whats, expected);
        let places = REASONS.iter().map(|(why, _)| *why as usize);
        assert!(places.eq(0..REASONS.len()));
    }
}
