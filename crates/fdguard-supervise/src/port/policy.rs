//! The policy for an address in use.

use std::str::FromStr;
use std::time::Duration;

use fdguard_core::units;

/// The policies: `refuse`, `wait`, `wait:30s`, `end-if-ours`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortPolicy {
    /// Name the holder and exit.
    #[default]
    Refuse,
    /// Wait this long for it to be free, then refuse.
    Wait(Duration),
    /// Stop what an earlier run left behind; refuse if any other process holds it.
    EndIfOurs,
}

/// The text is not a [`PortPolicy`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not one of refuse, wait, wait:30s, end-if-ours")]
pub struct BadPortPolicy(String);

/// How long `wait` alone waits.
const USUAL: Duration = Duration::from_secs(30);
/// A service that waits longer is down.
const LONGEST: Duration = Duration::from_secs(86_400);

impl FromStr for PortPolicy {
    type Err = BadPortPolicy;

    fn from_str(text: &str) -> Result<Self, BadPortPolicy> {
        let policy = match text {
            "refuse" => Some(Self::Refuse),
            "wait" => Some(Self::Wait(USUAL)),
            "end-if-ours" => Some(Self::EndIfOurs),
            other => {
                let length = other.strip_prefix("wait:").map(units::parse_duration);
                let length = length
                    .and_then(Result::ok)
                    .filter(|length| *length <= LONGEST);
                length.map(Self::Wait)
            }
        };
        policy.ok_or_else(|| BadPortPolicy(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::PortPolicy;

    #[test]
    fn texts_and_what_they_mean() {
        let wait = |milliseconds| PortPolicy::Wait(Duration::from_millis(milliseconds));
        for (text, policy) in [
            ("refuse", PortPolicy::Refuse),
            ("wait", wait(30_000)),
            ("wait:250ms", wait(250)),
            ("wait:5", wait(5000)),
            ("wait:2m", wait(120_000)),
            ("end-if-ours", PortPolicy::EndIfOurs),
        ] {
            assert_eq!(text.parse(), Ok(policy));
        }
        for text in [
            "",
            "kill",
            "wait:",
            "wait:x",
            "wait:1e9s",
            "wait:99999999999999999m",
            "wait:2d",
        ] {
            assert!(text.parse::<PortPolicy>().is_err(), "{text}");
        }
    }
}
