//! `--raise-limit`: raises the soft limit. It does not fix a leak.

use std::fmt;
use std::str::FromStr;

use fdguard_core::snapshot::Limits;
use fdguard_core::wall::FD_SETSIZE;
use fdguard_process::own_limit::{ENOUGH, raised};

pub use fdguard_process::own_limit::read;

/// What was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitRequest {
    /// To 4096, or as far as the hard limit allows.
    #[default]
    Enough,
    /// To this many.
    To(u64),
    /// As far as the hard limit allows.
    Most,
    /// Leave it.
    Off,
}

impl FromStr for LimitRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "on" => Ok(Self::Enough),
            "off" => Ok(Self::Off),
            "max" => Ok(Self::Most),
            _ => match text.parse() {
                Ok(number) if number > 0 => Ok(Self::To(number)),
                _ => Err(format!(
                    "{text:?} is not a limit: use a number, max, on or off"
                )),
            },
        }
    }
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitDecision {
    /// The limits that the program would have otherwise.
    pub before: Limits,
    /// The soft limit to start it with; absent to leave it.
    pub soft: Option<u64>,
    asked: LimitRequest,
}

/// Never below the present limit, never above the hard limit.
#[must_use]
pub fn decide(asked: LimitRequest, before: Limits) -> LimitDecision {
    let wanted = match asked {
        LimitRequest::Off => None,
        LimitRequest::Enough => Some(ENOUGH),
        LimitRequest::To(number) => Some(number),
        // Without a hard limit there is no value to raise it to.
        LimitRequest::Most => before.hard,
    };
    let soft = wanted.and_then(|wanted| raised(wanted, before));
    LimitDecision {
        before,
        soft,
        asked,
    }
}

/// One sentence about the outcome.
impl fmt::Display for LimitDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { soft, hard } = self.before;
        let number = |limit: Option<u64>| {
            limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
        };
        let was = number(soft);
        let Some(now) = self.soft else {
            return match self.asked {
                LimitRequest::Off => write!(f, "soft descriptor limit left at {was}"),
                LimitRequest::To(wanted) if hard.is_some_and(|hard| wanted > hard) => {
                    write!(
                        f,
                        "soft descriptor limit stays at {was}: the hard limit allows no more"
                    )
                }
                _ => write!(
                    f,
                    "soft descriptor limit stays at {was}: fdguard never lowers it"
                ),
            };
        };
        write!(f, "soft descriptor limit raised from {was} to {now}")?;
        let wanted = match self.asked {
            LimitRequest::To(wanted) => wanted,
            _ => ENOUGH,
        };
        if now < wanted {
            f.write_str(" (the hard limit allows no more)")?;
        }
        f.write_str("; this delays a leak but does not fix it")?;
        if now > FD_SETSIZE && soft.is_some_and(|soft| soft <= FD_SETSIZE) {
            f.write_str(", and select() still fails on descriptors from 1024 up")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::snapshot::Limits;

    use super::{LimitRequest, decide, read};

    fn limits(soft: u64, hard: u64) -> Limits {
        Limits {
            soft: Some(soft),
            hard: Some(hard),
        }
    }

    #[test]
    fn r28_the_soft_limit_is_raised_to_4096_or_to_the_hard_one() {
        assert_eq!(
            decide(LimitRequest::Enough, limits(1024, 524_288)).soft,
            Some(4096)
        );
        assert_eq!(
            decide(LimitRequest::Enough, limits(256, 1024)).soft,
            Some(1024)
        );
        assert_eq!(
            decide(LimitRequest::Most, limits(256, 10_240)).soft,
            Some(10_240)
        );
        assert_eq!(
            decide(LimitRequest::To(2000), limits(256, 10_240)).soft,
            Some(2000)
        );
        assert_eq!(
            decide(LimitRequest::To(20_000), limits(256, 10_240)).soft,
            Some(10_240)
        );
    }

    #[test]
    fn r28_it_is_never_lowered_and_can_be_left_alone() {
        assert_eq!(
            decide(LimitRequest::Enough, limits(65_536, 524_288)).soft,
            None
        );
        assert_eq!(decide(LimitRequest::To(100), limits(1024, 4096)).soft, None);
        assert_eq!(decide(LimitRequest::Off, limits(256, 4096)).soft, None);
        let unlimited = Limits::default();
        assert_eq!(decide(LimitRequest::Enough, unlimited).soft, None);
        assert_eq!(decide(LimitRequest::Most, limits(4096, 4096)).soft, None);
    }

    #[test]
    fn r28_the_outcome_is_told_and_never_called_the_fix() {
        let said = |asked, limits| decide(asked, limits).to_string();
        assert_eq!(
            said(LimitRequest::Enough, limits(1024, 524_288)),
            "soft descriptor limit raised from 1024 to 4096; this delays a leak but does not fix it, and select() still fails on descriptors from 1024 up"
        );
        assert_eq!(
            said(LimitRequest::Enough, limits(256, 512)),
            "soft descriptor limit raised from 256 to 512 (the hard limit allows no more); this delays a leak but does not fix it"
        );
        assert!(said(LimitRequest::Off, limits(256, 512)).ends_with("left at 256"));
        assert!(
            said(LimitRequest::Enough, limits(9999, 9999))
                .ends_with("stays at 9999: fdguard never lowers it")
        );
        assert!(
            said(LimitRequest::To(9), limits(5, 5))
                .ends_with("stays at 5: the hard limit allows no more")
        );
        assert!(said(LimitRequest::Most, Limits::default()).contains("unlimited"));
    }

    #[test]
    fn it_is_written_as_a_word_or_a_number() {
        for (text, meant) in [
            ("off", LimitRequest::Off),
            ("on", LimitRequest::Enough),
            ("max", LimitRequest::Most),
            ("8192", LimitRequest::To(8192)),
        ] {
            assert_eq!(text.parse(), Ok(meant));
        }
        for text in ["", "0", "-1", "4k", "most"] {
            assert!(
                text.parse::<LimitRequest>()
                    .unwrap_err()
                    .contains("is not a limit"),
                "{text}"
            );
        }
    }

    #[test]
    fn our_own_limits_are_read() {
        assert!(read().soft <= read().hard || read().hard.is_none());
    }
}
