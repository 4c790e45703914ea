//! Tests the rules against a model that only remembers what was accepted.

use proptest::prelude::*;

use super::*;

fn owner(number: u32) -> Owner {
    Owner {
        name: format!("closer {number}"),
        process: ProcessId {
            boot: "3f2a9c04-0b1d-4e5f-8a6b-00c7d8e9fa0b".parse().unwrap(),
            pid: number,
            start: 1,
        },
    }
}

/// A transition in numbers: which, by which process, the offset from the right version, whether the
/// owner is alive.
type DrawnStep = (u8, u32, i64, bool);

fn step(drawn: DrawnStep, version: u64) -> RowTransition {
    let (what, who, off, lives) = drawn;
    let version = version.saturating_add_signed(off);
    match what {
        0 => RowTransition::Update { version },
        1 => RowTransition::BeginClosing {
            owner: owner(who),
            present: if lives {
                Liveness::Alive
            } else {
                Liveness::Gone
            },
        },
        2 => RowTransition::TakeOver {
            version,
            owner: owner(who),
        },
        3 => RowTransition::Finish {
            version,
            end: if lives {
                RowEnd::Closed
            } else {
                RowEnd::Failed
            },
        },
        _ => RowTransition::Lose { version },
    }
}

/// Written from the specification alone: the words of all states that an entry went through.
#[derive(Default)]
struct Model {
    states: Vec<&'static str>,
    owner: Option<Owner>,
}

impl Model {
    fn last(&self) -> &'static str {
        self.states.last().copied().unwrap_or("running")
    }

    /// The word of the next state, if the transition is allowed.
    fn allows(&self, step: &RowTransition) -> Option<&'static str> {
        let now = self.states.len() as u64 + 1;
        match (self.last(), step) {
            ("closed" | "failed", _) => None,
            ("running", RowTransition::Update { version }) => {
                (*version == now).then_some("running")
            }
            ("running", RowTransition::BeginClosing { .. }) => Some("closing"),
            ("closing", RowTransition::BeginClosing { present, .. }) => {
                (*present == Liveness::Gone).then_some("closing")
            }
            ("closing", RowTransition::TakeOver { version, .. }) => {
                (*version == now).then_some("closing")
            }
            ("closing", RowTransition::Finish { version, end }) => {
                (*version == now).then_some(match end {
                    RowEnd::Closed => "closed",
                    RowEnd::Failed => "failed",
                })
            }
            (_, RowTransition::Lose { version }) => (*version == now).then_some("failed"),
            _ => None,
        }
    }

    fn note(&mut self, word: &'static str, step: &RowTransition) {
        self.states.push(word);
        if let RowTransition::BeginClosing { owner, .. } | RowTransition::TakeOver { owner, .. } =
            step
        {
            self.owner = Some(owner.clone());
        }
    }
}

proptest! {
    #[test]
    fn r53_the_rules_are_those_of_the_sentence(
        steps in prop::collection::vec((0u8..5, 0u32..3, -1i64..=1, any::<bool>()), 0..40)
    ) {
        let mut standing = RowStatus::new();
        let mut model = Model::default();
        for drawn in steps {
            let step = step(drawn, standing.version);
            let expected = model.allows(&step);
            match standing.after(&step) {
                Ok(next) => {
                    prop_assert_eq!(Some(next.state.as_str()), expected);
                    prop_assert!(!standing.state.is_final());
                    model.note(next.state.as_str(), &step);
                    standing = next;
                }
                Err(_refused) => prop_assert_eq!(expected, None),
            }
            prop_assert_eq!(standing.version, model.states.len() as u64 + 1);
            prop_assert_eq!(&standing.owner, &model.owner);
        }
    }
}

#[test]
fn r53_what_has_ended_is_refused_whatever_is_asked() {
    for state in [RowState::Closed, RowState::Failed] {
        let ended = RowStatus {
            state,
            owner: None,
            version: 4,
        };
        for what in 0..5 {
            for lives in [true, false] {
                let step = step((what, 1, 0, lives), 4);
                assert_eq!(
                    ended.after(&step),
                    Err(TransitionRefusal::Ended(state)),
                    "{step:?}"
                );
            }
        }
    }
}

#[test]
fn refusals_say_why() {
    let running = RowStatus::new();
    let refused = |standing: &RowStatus, drawn| standing.after(&step(drawn, standing.version));
    assert_eq!(
        refused(&running, (0, 0, 1, true)),
        Err(TransitionRefusal::Stale)
    );
    assert_eq!(
        refused(&running, (3, 0, 0, true)),
        Err(TransitionRefusal::NotClosing)
    );
    assert_eq!(
        refused(&running, (2, 0, 0, true)),
        Err(TransitionRefusal::NotClosing)
    );
    let closing = running.after(&step((1, 7, 0, true), 1)).unwrap();
    let taken = Err(TransitionRefusal::AlreadyClosing(owner(7)));
    assert_eq!(refused(&closing, (1, 8, 0, true)), taken);
    assert_eq!(refused(&closing, (0, 8, 0, true)), taken);
    // The same owner does not win twice either: two of its threads may have tried.
    assert_eq!(refused(&closing, (1, 7, 0, true)), taken);
    for state in RowState::ALL {
        assert_eq!(RowState::parse(state.as_str()), Some(state));
    }
    assert_eq!(RowState::parse("open"), None);
}
