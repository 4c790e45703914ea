//! Calls are written to JSON by their names.

use std::borrow::Cow;

use fdguard_wire::{CloseCall, FdCall, OpenCall};
use serde::{Deserialize as _, Deserializer, Serializer};

/// A call that has a name.
pub(super) trait NamedCall: Copy {
    fn name(self) -> &'static str;
    fn from_name(name: &str) -> Self;
}

macro_rules! named_calls {
    ($($call:ty),*) => {
        $(impl NamedCall for $call {
            fn name(self) -> &'static str {
                <$call>::name(self)
            }

            fn from_name(name: &str) -> Self {
                <$call>::from_name(name)
            }
        })*
    };
}

named_calls!(OpenCall, CloseCall, FdCall);

pub(super) fn serialize<C: NamedCall, S: Serializer>(
    call: &C,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(call.name())
}

pub(super) fn deserialize<'de, C: NamedCall, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<C, D::Error> {
    let name = Cow::<str>::deserialize(deserializer)?;
    Ok(C::from_name(&name))
}
