//! Is it the deploy or the machine? From where a service grows and where it does not.

use fdguard_core::units::counted;
use serde::Serialize;

use super::rows::FleetRow;

/// Hosts that a text names.
const NAMED: usize = 5;

/// Where a service grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FleetSpread {
    /// No host has it.
    Absent,
    /// It grows nowhere.
    Nowhere,
    /// Only one host has it, so nothing can be compared.
    OnlyHost,
    /// On one of several.
    OneHost,
    /// On some.
    SomeHosts,
    /// On all.
    AllHosts,
}

/// What follows from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FleetConclusion {
    /// Where it grows.
    pub spread: FleetSpread,
    /// In words.
    pub text: String,
}

impl FleetConclusion {
    /// From one service on all hosts.
    pub(super) fn draw(rows: &[FleetRow]) -> Self {
        let growing: Vec<&FleetRow> = rows.iter().filter(|row| row.is_growing()).collect();
        let names: Vec<&str> = growing
            .iter()
            .take(NAMED)
            .map(|row| row.host.as_str())
            .collect();
        let names = names.join(", ");
        let (all, some) = (rows.len(), growing.len());
        let (spread, text) = match (all, some) {
            (0, _) => (FleetSpread::Absent, "No host reports it.".to_owned()),
            (_, 0) => (
                FleetSpread::Nowhere,
                format!("It grows on none of {}.", counted(all as u64, "host")),
            ),
            (1, _) => (
                FleetSpread::OnlyHost,
                format!("It grows on {names}, the only host that has it."),
            ),
            (_, 1) => (
                FleetSpread::OneHost,
                format!(
                    "It grows only on {names}, and not on {}: suspect that machine, its load or \
                     its version.",
                    counted(all as u64 - 1, "other")
                ),
            ),
            _ if all == some => (
                FleetSpread::AllHosts,
                format!("It grows on all {all} hosts: suspect the program or its last deploy."),
            ),
            _ => (
                FleetSpread::SomeHosts,
                format!(
                    "It grows on {some} of {all} hosts ({names}{}): compare their versions.",
                    if some > NAMED { ", …" } else { "" }
                ),
            ),
        };
        Self { spread, text }
    }
}

#[cfg(test)]
mod tests {
    use super::{FleetConclusion, FleetSpread};
    use crate::fleet::rows::join;
    use crate::fleet::rows::tests::sample;

    fn spread(verdicts: &[f64]) -> FleetSpread {
        let hosts: Vec<String> = (0..verdicts.len()).map(|at| format!("h{at}")).collect();
        let samples: Vec<_> = verdicts
            .iter()
            .zip(&hosts)
            .map(|(verdict, host)| {
                let labels = [
                    ("instance", host.as_str()),
                    ("kind", "unit"),
                    ("service", "web"),
                ];
                sample("fdguard_verdict", &labels, *verdict)
            })
            .collect();
        FleetConclusion::draw(&join(&samples, "instance")).spread
    }

    #[test]
    fn the_deploy_or_the_machine() {
        assert_eq!(spread(&[]), FleetSpread::Absent);
        assert_eq!(spread(&[0.0, 1.0, 2.0]), FleetSpread::Nowhere);
        assert_eq!(spread(&[4.0]), FleetSpread::OnlyHost);
        assert_eq!(spread(&[4.0, 1.0]), FleetSpread::OneHost);
        assert_eq!(spread(&[4.0, 1.0, 3.0]), FleetSpread::SomeHosts);
        assert_eq!(spread(&[4.0, 3.0]), FleetSpread::AllHosts);
    }
}
