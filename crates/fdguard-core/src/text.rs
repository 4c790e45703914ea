//! Bytes from the kernel that are usually, but not always, text.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bstr::ByteSlice;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// A file name, command line or peer as the kernel gave it. In JSON it is a string, or
/// `{"bytes": "base64…"}` where it is not UTF-8; nothing is ever lost or replaced.
/// Copies share the bytes: a path is a target and a detail, and often that of many descriptors.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(Arc<[u8]>);

impl Text {
    /// The raw bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The last component of a path, ignoring trailing slashes; the whole if there is none.
    #[must_use]
    pub fn base_name(&self) -> String {
        let whole = self.to_lossy();
        let name = whole.trim_end_matches('/').rsplit('/').next();
        name.filter(|name| !name.is_empty())
            .unwrap_or(&whole)
            .to_owned()
    }

    /// The text, if it is UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// For display: bytes that are not UTF-8 become the replacement character.
    #[must_use]
    pub fn to_lossy(&self) -> std::borrow::Cow<'_, str> {
        self.0.to_str_lossy()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0.as_bstr(), f)
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into_bytes().into())
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_str() {
            Some(text) => serializer.serialize_str(text),
            None => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("bytes", &BASE64.encode(&self.0))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or {\"bytes\": base64}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text::from(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Text, A::Error> {
        match map.next_entry::<String, String>()? {
            Some((key, value)) if key == "bytes" => BASE64
                .decode(value)
                .map(Text::from)
                .map_err(|error| de::Error::custom(format!("bytes: {error}"))),
            _ => Err(de::Error::custom("expected the key \"bytes\"")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Text;

    #[test]
    fn bytes_that_are_not_text_survive_json() {
        let odd = Text::from(&b"/tmp/\xff\xfe.log"[..]);
        let json = serde_json::to_string(&odd).unwrap();
        assert_eq!(json, r#"{"bytes":"L3RtcC///i5sb2c="}"#);
        assert_eq!(serde_json::from_str::<Text>(&json).unwrap(), odd);
    }

    #[test]
    fn the_last_part_of_a_path_has_no_slash() {
        let cases = [
            ("/a/b.py", "b.py"),
            ("b.py", "b.py"),
            ("/a/b/", "b"),
            ("/", "/"),
            ("", ""),
        ];
        for (path, name) in cases {
            assert_eq!(Text::from(path).base_name(), name, "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_come_back_equal(bytes: Vec<u8>) {
            let text = Text::from(bytes);
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(serde_json::from_str::<Text>(&json).unwrap(), text);
        }
    }
}
