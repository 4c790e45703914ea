//! The flags a file was opened with, apart from the access mode.

use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The current flags of a descriptor's file, as bits with the values that most architectures use.
/// In JSON a list of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpenFlags(u32);

/// Every flag with its name in JSON. Access mode and close-on-exec are separate fields.
const NAMES: [(u32, &str); 11] = [
    (0o2000, "append"),
    (0o4000, "nonblock"),
    (0o10_000, "dsync"),
    (0o20_000, "async"),
    (0o40_000, "direct"),
    (0o100_000, "largefile"),
    (0o200_000, "directory"),
    (0o400_000, "nofollow"),
    (0o1_000_000, "noatime"),
    (0o4_000_000, "sync"),
    (0o20_000_000, "tmpfile"),
];

impl OpenFlags {
    /// The bits among these that have a name.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self(NAMES.iter().fold(0, |sum, (bit, _)| sum | bits & bit))
    }

    /// The bits.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The names of those that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let set = NAMES.into_iter().filter(move |(bit, _)| self.0 & bit != 0);
        set.map(|(_, name)| name)
    }
}

/// Whether the flags need not be written: empty or unknown.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    clippy::ref_option,
    reason = "the shape that serde asks for"
)]
pub(crate) fn is_silent(flags: &Option<OpenFlags>) -> bool {
    flags.is_none_or(OpenFlags::is_empty)
}

impl Serialize for OpenFlags {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for name in self.names() {
            list.serialize_element(name)?;
        }
        list.end()
    }
}

impl<'de> Deserialize<'de> for OpenFlags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        let bit = |name: &String| NAMES.iter().find(|(_, known)| known == name);
        // Flags that only a later version knows are omitted.
        let bits = names.iter().filter_map(bit);
        Ok(Self(bits.fold(0, |sum, (bit, _)| sum | bit)))
    }
}

#[cfg(test)]
mod tests {
    use super::OpenFlags;

    #[test]
    fn flags_are_names_and_come_back() {
        let flags = OpenFlags::from_bits(0o2_006_002);
        let text = serde_json::to_string(&flags).unwrap();
        assert_eq!(text, r#"["append","nonblock"]"#);
        assert_eq!(serde_json::from_str::<OpenFlags>(&text).unwrap(), flags);
        let later: OpenFlags = serde_json::from_str(r#"["append","novelty"]"#).unwrap();
        assert_eq!(later.bits(), 0o2000);
    }
}
