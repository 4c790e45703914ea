//! Builds the program's environment from fdguard's.
//!
//! fdguard's own environment is never changed, because other threads may read it. The program's is
//! built from a copy.

use std::collections::BTreeSet;
use std::ffi::OsString;

/// Variables meant for fdguard alone. With them the program would use fdguard's sockets or notify
/// fdguard's parent.
const OURS: [&str; 7] = [
    "LISTEN_PID",
    "LISTEN_PIDFDID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
];

/// The environment without variables meant for fdguard. Signs of the supervisor stay, so that the
/// program can detect it.
#[must_use]
pub fn for_program(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let keep = |name: &OsString| !OURS.iter().any(|ours| name == ours);
    environment
        .into_iter()
        .filter(|(name, _)| keep(name))
        .collect()
}

/// Keeps each name once: of variables with the same name, the last wins and keeps its position.
#[must_use]
pub fn last_of_each(mut environment: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let mut seen = BTreeSet::new();
    environment.reverse();
    environment.retain(|(name, _)| seen.insert(name.clone()));
    environment.reverse();
    environment
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{OURS, for_program, last_of_each};

    #[test]
    fn the_last_one_of_a_name_holds() {
        let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let given = vec![pair("A", "1"), pair("B", "2"), pair("A", "3")];
        assert_eq!(last_of_each(given), [pair("B", "2"), pair("A", "3")]);
    }

    #[test]
    fn r27_sockets_and_notifications_are_ours_and_signs_of_the_supervisor_are_passed_on() {
        let pair = |name: &str| (OsString::from(name), OsString::from("1"));
        let passed = [
            "PATH",
            "INVOCATION_ID",
            "SUPERVISOR_ENABLED",
            "LISTEN_FDS_X",
        ];
        let all = OURS.iter().chain(&passed).map(|name| pair(name));
        let expected: Vec<_> = passed.iter().map(|name| pair(name)).collect();
        assert_eq!(for_program(all), expected);
    }
}
