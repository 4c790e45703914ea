//! What a tracer was asked to collect, and what cannot be found without it.

use serde::{Deserialize, Serialize};

use crate::Gap;

/// Which of the optional events a tracer sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectedEvents {
    /// [`What::Use`](super::What::Use).
    pub uses: bool,
    /// [`What::Enter`](super::What::Enter) and [`What::Leave`](super::What::Leave).
    pub calls: bool,
    /// [`What::Lock`](super::What::Lock).
    pub locks: bool,
    /// [`What::Select`](super::What::Select).
    pub selects: bool,
}

impl CollectedEvents {
    /// Everything.
    pub const ALL: Self = Self {
        uses: true,
        calls: true,
        locks: true,
        selects: true,
    };

    /// What cannot be found without the events that are missing.
    #[must_use]
    pub fn gaps(self) -> Vec<Gap> {
        let missing = [
            (
                self.uses,
                "use-after-close, recycled-write, closes that hit a reused number",
                "uses of descriptors",
            ),
            (self.calls, "stranger-close", "blocking calls"),
            (self.locks, "lock-drop", "POSIX locks"),
            (self.selects, "select-past-1024", "calls to select()"),
        ];
        let missing = missing.iter().filter(|(is_collected, ..)| !is_collected);
        let (what, why): (Vec<&str>, Vec<&str>) =
            missing.map(|(_, what, why)| (*what, *why)).unzip();
        if what.is_empty() {
            return Vec::new();
        }
        let why = format!("{} were not collected", why.join(", "));
        let remedy =
            "trace it with fdguard's library, if it can load it: --source launch, --source attach";
        vec![Gap::new(what.join(", "), why, remedy)]
    }
}

#[cfg(test)]
mod tests {
    use super::CollectedEvents;

    #[test]
    fn r40_what_was_not_collected_is_a_gap() {
        assert_eq!(CollectedEvents::ALL.gaps(), []);
        let blind = CollectedEvents::default().gaps();
        assert_eq!(blind.len(), 1);
        assert!(blind[0].what.contains("stranger-close, lock-drop"));
        assert!(blind[0].why.contains("blocking calls, POSIX locks"));
    }
}
