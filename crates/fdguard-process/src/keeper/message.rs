//! Messages between owner and keeper, of fixed length. Pure; the keeper may call all of it.

use std::time::Duration;

use rustix::io::Errno;

use crate::limits::EnforcedLimits;
use crate::tree::{Exit, StopPlan, Usage};

/// A message is this many words of 64 bits.
const WORDS: usize = 8;
/// The length of every message.
pub(crate) const LENGTH: usize = WORDS * 8;

/// A step of a start that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Step {
    Unknown,
    Keeper,
    Signals,
    Subreaper,
    Pipe,
    Fork,
    Group,
    Descriptors,
    CloseRange,
    Limit,
    Dir,
    Exec,
    Pidfd,
    Terminal,
}

impl Step {
    const ALL: [Self; 14] = [
        Self::Unknown,
        Self::Keeper,
        Self::Signals,
        Self::Subreaper,
        Self::Pipe,
        Self::Fork,
        Self::Group,
        Self::Descriptors,
        Self::CloseRange,
        Self::Limit,
        Self::Dir,
        Self::Exec,
        Self::Pidfd,
        Self::Terminal,
    ];

    pub(crate) fn from_number(number: u32) -> Self {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        Self::ALL.get(index).copied().unwrap_or(Self::Unknown)
    }

    /// Parses the name used by a program that waits for its keeper.
    pub(crate) fn from_word(word: &str) -> Self {
        match word {
            "group" => Self::Group,
            "descriptors" => Self::Descriptors,
            "terminal" => Self::Terminal,
            "folder" => Self::Dir,
            _ => Self::Unknown,
        }
    }

    /// The step that failed, for error messages.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Unknown => "cannot start the program",
            Self::Keeper => "cannot start its keeper process",
            Self::Signals => "cannot wait for signals",
            Self::Subreaper => "cannot adopt its descendants",
            Self::Pipe => "cannot create the error pipe",
            Self::Fork => "cannot create its process",
            Self::Group => "cannot set its session or process group",
            Self::Descriptors => "cannot pass its descriptors",
            Self::CloseRange => "cannot close the other descriptors",
            Self::Limit => "cannot set its limits",
            Self::Dir => "cannot change to its directory",
            Self::Exec => "cannot run the program",
            Self::Pidfd => "cannot open its pidfd",
            Self::Terminal => "cannot set up its terminal",
        }
    }
}

/// Messages from a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FromKeeper {
    /// The program has been running since `at` (ticks since boot); its pidfd is attached if the
    /// owner wants it.
    Started {
        main: u32,
        at: u64,
        in_cgroup: bool,
        enforced: EnforcedLimits,
        /// The keeper itself, and its own start.
        keeper: u32,
        keeper_at: u64,
    },
    /// The start failed, and nothing of it is left.
    Failed { step: Step, errno: Errno },
    /// The program itself ended.
    MainEnded { exit: Exit, left: u32, usage: Usage },
    /// Nothing is left.
    Empty {
        exit: Exit,
        killed: u32,
        reaped: u32,
    },
}

/// Messages from an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToKeeper {
    Stop(StopPlan),
    /// Send this signal to the program, and to nothing else.
    Signal(i32),
    /// Send this signal to every living member.
    SignalAll {
        signal: i32,
        except_main: bool,
    },
}

impl FromKeeper {
    pub(crate) fn encode(self) -> [u8; LENGTH] {
        let words = match self {
            Self::Started {
                main,
                at,
                in_cgroup,
                enforced,
                keeper,
                keeper_at,
            } => {
                let (in_cgroup, enforced) = (in_cgroup.into(), enforced.word());
                let keeper = keeper.into();
                [
                    1,
                    main.into(),
                    in_cgroup,
                    at,
                    enforced,
                    keeper,
                    keeper_at,
                    0,
                ]
            }
            Self::Failed { step, errno } => [
                2,
                (step as u32).into(),
                word(errno.raw_os_error()),
                0,
                0,
                0,
                0,
                0,
            ],
            Self::MainEnded { exit, left, usage } => {
                let [kind, value] = exit_words(exit);
                let (user, system) = (micros(usage.user), micros(usage.system));
                [
                    3,
                    kind,
                    value,
                    left.into(),
                    user,
                    system,
                    usage.peak_memory,
                    usage.memory_kills.map_or(0, |kills| u64::from(kills) + 1),
                ]
            }
            Self::Empty {
                exit,
                killed,
                reaped,
            } => {
                let [kind, value] = exit_words(exit);
                [4, kind, value, killed.into(), reaped.into(), 0, 0, 0]
            }
        };
        bytes(words)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [kind, a, b, c, d, e, f, g] = words(bytes)?;
        let small = |word: u64| u32::try_from(word).ok();
        Some(match kind {
            1 => Self::Started {
                main: small(a)?,
                in_cgroup: b != 0,
                at: c,
                enforced: EnforcedLimits::from_word(d),
                keeper: small(e)?,
                keeper_at: f,
            },
            2 => Self::Failed {
                step: Step::from_number(small(a)?),
                errno: errno(b)?,
            },
            3 => Self::MainEnded {
                exit: exit(a, b)?,
                left: small(c)?,
                usage: Usage {
                    user: Duration::from_micros(d),
                    system: Duration::from_micros(e),
                    peak_memory: f,
                    memory_kills: g.checked_sub(1).and_then(small),
                },
            },
            4 => Self::Empty {
                exit: exit(a, b)?,
                killed: small(c)?,
                reaped: small(d)?,
            },
            _ => return None,
        })
    }
}

impl ToKeeper {
    pub(crate) fn encode(self) -> [u8; LENGTH] {
        let [kind, signal, value] = match self {
            Self::Stop(stop) => [1, word(stop.signal), nanos(stop.grace)],
            Self::Signal(signal) => [2, word(signal), 0],
            Self::SignalAll {
                signal,
                except_main,
            } => [3, word(signal), except_main.into()],
        };
        bytes([kind, signal, value, 0, 0, 0, 0, 0])
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [kind, signal, value, ..] = words(bytes)?;
        let signal = number(signal)?;
        Some(match kind {
            1 => Self::Stop(StopPlan {
                signal,
                grace: Duration::from_nanos(value),
            }),
            2 => Self::Signal(signal),
            3 => Self::SignalAll {
                signal,
                except_main: value != 0,
            },
            _ => return None,
        })
    }
}

fn exit_words(exit: Exit) -> [u64; 2] {
    match exit {
        Exit::Code(code) => [0, code.into()],
        Exit::Signal(signal) => [1, word(signal)],
    }
}

fn exit(kind: u64, value: u64) -> Option<Exit> {
    Some(match kind {
        0 => Exit::Code(u8::try_from(value).ok()?),
        1 => Exit::Signal(number(value)?),
        _ => return None,
    })
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The longest grace that can be represented is 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn word(number: i32) -> u64 {
    u64::from(u32::from_ne_bytes(number.to_ne_bytes()))
}

fn number(word: u64) -> Option<i32> {
    let low = u32::try_from(word).ok()?;
    Some(i32::from_ne_bytes(low.to_ne_bytes()))
}

/// Only what the kernel returns as an error (1 to 4095); rustix does not accept anything else.
fn errno(word: u64) -> Option<Errno> {
    let code = number(word)?;
    (1..4096)
        .contains(&code)
        .then(|| Errno::from_raw_os_error(code))
}

fn bytes(words: [u64; WORDS]) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    for (room, word) in bytes.chunks_exact_mut(8).zip(words) {
        room.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

fn words(bytes: &[u8]) -> Option<[u64; WORDS]> {
    if bytes.len() != LENGTH {
        return None;
    }
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    Some(words)
}

/// Decodes any message, for the fuzz target: what is understood is encoded as it was, or shorter.
#[cfg(feature = "fuzzing")]
pub fn fuzz_message(bytes: &[u8]) {
    if let Some(message) = FromKeeper::decode(bytes) {
        assert_eq!(FromKeeper::decode(&message.encode()), Some(message));
    }
    if let Some(message) = ToKeeper::decode(bytes) {
        assert_eq!(ToKeeper::decode(&message.encode()), Some(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LimitMechanism;

    #[test]
    fn what_a_keeper_says_arrives() {
        let usage = Usage {
            user: Duration::from_micros(12),
            system: Duration::from_micros(34),
            peak_memory: 1 << 40,
            memory_kills: Some(0),
        };
        let exit = Exit::Signal(9);
        let (step, errno) = (Step::Dir, Errno::NOENT);
        for said in [
            FromKeeper::Started {
                main: 4_194_304,
                at: 1 << 40,
                in_cgroup: true,
                enforced: EnforcedLimits {
                    memory: LimitMechanism::Cgroup,
                    ..EnforcedLimits::default()
                },
                keeper: 7,
                keeper_at: 8,
            },
            FromKeeper::Failed { step, errno },
            FromKeeper::MainEnded {
                exit: Exit::Code(255),
                left: 3,
                usage,
            },
            FromKeeper::Empty {
                exit,
                killed: 2,
                reaped: 5,
            },
        ] {
            assert_eq!(FromKeeper::decode(&said.encode()), Some(said));
        }
    }

    #[test]
    fn what_an_owner_says_arrives() {
        let stop = StopPlan {
            signal: 15,
            grace: Duration::from_millis(10_500),
        };
        for said in [
            ToKeeper::Stop(stop),
            ToKeeper::Signal(2),
            ToKeeper::SignalAll {
                signal: 64,
                except_main: true,
            },
        ] {
            assert_eq!(ToKeeper::decode(&said.encode()), Some(said));
        }
    }

    #[test]
    fn what_is_no_message_is_nothing() {
        assert_eq!(FromKeeper::decode(&[]), None);
        assert_eq!(FromKeeper::decode(&[0; LENGTH]), None);
        assert_eq!(ToKeeper::decode(&[1; 3]), None);
    }

    #[test]
    fn a_failure_with_a_number_that_is_no_errno_is_nothing() {
        for (code, is_one) in [(0, false), (1, true), (4095, true), (4096, false)] {
            for code in [code, code << 32, u64::from(u32::MAX) - code] {
                let failed = FromKeeper::decode(&bytes([2, 1, code, 0, 0, 0, 0, 0]));
                assert_eq!(failed.is_some(), is_one && code < 4096, "{code}");
            }
        }
    }

    #[test]
    fn every_step_has_its_number() {
        for step in Step::ALL {
            assert_eq!(Step::from_number(step as u32), step);
        }
        assert_eq!(Step::from_number(99), Step::Unknown);
    }
}
