//! `/proc/sys/kernel/random/boot_id`: the kernel's name for one boot of the host.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One boot. In JSON the text of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootId(u128);

/// The text is not a boot id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a boot id: expected 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12")]
pub struct BadBootId;

/// Positions of the dashes.
const DASHES: [usize; 4] = [8, 13, 18, 23];

impl BootId {
    /// Reads the file, or another text of the same form.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadBootId> {
        let text = bytes.trim_ascii();
        if text.len() != 36 {
            return Err(BadBootId);
        }
        let mut number = 0;
        for (at, byte) in text.iter().enumerate() {
            if DASHES.contains(&at) {
                (*byte == b'-').then_some(()).ok_or(BadBootId)?;
                continue;
            }
            let digit = char::from(*byte).to_digit(16).ok_or(BadBootId)?;
            number = number << 4 | u128::from(digit);
        }
        Ok(Self(number))
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |shift: u32, digits: u32| self.0 >> shift & ((1 << (4 * digits)) - 1);
        write!(f, "{:08x}-{:04x}-", part(96, 8), part(80, 4))?;
        write!(f, "{:04x}-{:04x}-", part(64, 4), part(48, 4))?;
        write!(f, "{:012x}", part(0, 12))
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for BootId {
    type Err = BadBootId;

    fn from_str(text: &str) -> Result<Self, BadBootId> {
        Self::parse(text.as_bytes())
    }
}

impl Serialize for BootId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BootId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BadBootId, BootId};

    #[test]
    fn the_text_of_the_kernel_comes_back() {
        let text = "3f2a9c04-0b1d-4e5f-8a6b-00c7d8e9fa0b";
        let id = BootId::parse(format!("{text}\n").as_bytes()).unwrap();
        assert_eq!(id.to_string(), text);
        for text in [
            "",
            "another",
            "3f2a9c04-0b1d-4e5f-8a6b-00c7d8e9fa0",
            &text.replace('-', "0"),
        ] {
            assert_eq!(text.parse::<BootId>(), Err(BadBootId), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_id_comes_back_and_any_bytes_are_survived(number: u128, bytes: Vec<u8>) {
            prop_assert_eq!(BootId(number).to_string().parse(), Ok(BootId(number)));
            let _ = BootId::parse(&bytes);
        }
    }
}
