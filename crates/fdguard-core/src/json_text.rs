//! Writes JSON to memory: the same text as `serde_json`, in less time. Names of fields and most
//! strings need no escapes, so they are copied as they are.

use serde::Serialize;
use serde::ser::{self, Error as _, Serializer};
use serde_json::Error;

/// Appends a value as JSON.
pub(crate) fn append(value: &impl Serialize, text: &mut Vec<u8>) -> Result<(), Error> {
    value.serialize(&mut JsonText { text })
}

/// Longer names of fields are written in several steps.
const LONGEST_NAME: usize = 28;

/// Whether some byte is a control character, a quote or a backslash.
#[inline(always)]
fn needs_escape(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let has = |word: &[u8; 8]| has_escape(u64::from_ne_bytes(*word));
    // Without an end in the middle, the comparisons do not wait for each other.
    let found = words.iter().fold(0, |any, word| any | has(word));
    // The last eight, some of them once more, or those that there are and blanks.
    let last = bytes.last_chunk::<8>().copied().unwrap_or_else(|| {
        let mut word = [b' '; 8];
        for (to, from) in word.iter_mut().zip(rest) {
            *to = *from;
        }
        word
    });
    found | has(&last) != 0
}

/// Not zero if one of the eight bytes needs an escape: a byte's highest bit is set where a
/// subtraction borrowed, and that of no byte that had it before.
#[inline]
fn has_escape(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
    control | zero(word ^ (ONES * u64::from(b'"'))) | zero(word ^ (ONES * u64::from(b'\\')))
}

/// The text so far.
struct JsonText<'a> {
    text: &'a mut Vec<u8>,
}

/// A list or an object that is being written.
struct Compound<'a, 'b> {
    out: &'b mut JsonText<'a>,
    is_empty: bool,
    end: &'static [u8],
}

impl JsonText<'_> {
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    fn put_number(&mut self, number: impl itoa::Integer) {
        self.put(itoa::Buffer::new().format(number).as_bytes());
    }

    /// What is rare is left to `serde_json`.
    fn put_rare(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        serde_json::to_writer(&mut *self.text, value)
    }

    fn put_text(&mut self, text: &str) -> Result<(), Error> {
        if needs_escape(text.as_bytes()) {
            return self.put_rare(text);
        }
        self.text.reserve(text.len() + 2);
        self.text.push(b'"');
        self.put(text.as_bytes());
        self.text.push(b'"');
        Ok(())
    }

    /// The name of a field, and what separates it from the one before it.
    ///
    /// Where it is inlined, the name is known: the compiler checks it, joins it with the signs
    /// around it, and copies a constant.
    #[inline(always)]
    fn put_name(&mut self, name: &'static str, is_first: bool) -> Result<(), Error> {
        let length = name.len();
        if length > LONGEST_NAME || needs_escape(name.as_bytes()) {
            return self.put_odd_name(name, is_first);
        }
        let mut joined = [0; LONGEST_NAME + 4];
        joined[..2].copy_from_slice(b",\"");
        joined[2..length + 2].copy_from_slice(name.as_bytes());
        joined[length + 2..length + 4].copy_from_slice(b"\":");
        if is_first {
            self.put(&joined[1..length + 4]);
        } else {
            self.put(&joined[..length + 4]);
        }
        Ok(())
    }

    #[cold]
    fn put_odd_name(&mut self, name: &str, is_first: bool) -> Result<(), Error> {
        self.put(if is_first { b"" } else { b"," });
        self.put_rare(name)?;
        self.put(b":");
        Ok(())
    }
}

impl<'a> JsonText<'a> {
    /// An object with one field, the name of a variant, whose value is being written.
    fn open_variant<'b>(
        &'b mut self,
        variant: &str,
        start: &[u8],
        end: &'static [u8],
    ) -> Result<Compound<'a, 'b>, Error> {
        self.put(b"{");
        self.put_text(variant)?;
        Ok(self.open(start, end))
    }

    fn open<'b>(&'b mut self, start: &[u8], end: &'static [u8]) -> Compound<'a, 'b> {
        self.put(start);
        Compound {
            out: self,
            is_empty: true,
            end,
        }
    }
}

impl Compound<'_, '_> {
    #[inline]
    fn separate(&mut self) {
        if !std::mem::take(&mut self.is_empty) {
            self.out.text.push(b',');
        }
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.separate();
        value.serialize(&mut *self.out)
    }

    #[inline(always)]
    fn field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Error> {
        let is_first = std::mem::take(&mut self.is_empty);
        self.out.put_name(key, is_first)?;
        value.serialize(&mut *self.out)
    }

    fn finish(self) {
        self.out.put(self.end);
    }
}

/// Methods for types that are written in one way.
macro_rules! numbers {
    ($($method:ident: $type:ty,)*) => {
        $(fn $method(self, value: $type) -> Result<(), Error> {
            self.put_number(value);
            Ok(())
        })*
    };
}

impl<'a, 'b> Serializer for &'b mut JsonText<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Compound<'a, 'b>;
    type SerializeTuple = Compound<'a, 'b>;
    type SerializeTupleStruct = Compound<'a, 'b>;
    type SerializeTupleVariant = Compound<'a, 'b>;
    type SerializeMap = Compound<'a, 'b>;
    type SerializeStruct = Compound<'a, 'b>;
    type SerializeStructVariant = Compound<'a, 'b>;

    numbers! {
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_i64: i64,
        serialize_i128: i128,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_u64: u64,
        serialize_u128: u128,
    }

    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        self.put(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), Error> {
        self.put_rare(&value)
    }

    fn serialize_f64(self, value: f64) -> Result<(), Error> {
        self.put_rare(&value)
    }

    fn serialize_char(self, value: char) -> Result<(), Error> {
        self.put_text(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), Error> {
        self.put_text(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Error> {
        self.put_rare(value)
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.put(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Error> {
        self.put_text(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        let mut object = self.open(b"{", b"}");
        object.field(variant, value)?;
        object.finish();
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Compound<'a, 'b>, Error> {
        Ok(self.open(b"[", b"]"))
    }

    fn serialize_tuple(self, _: usize) -> Result<Compound<'a, 'b>, Error> {
        Ok(self.open(b"[", b"]"))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Compound<'a, 'b>, Error> {
        Ok(self.open(b"[", b"]"))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'a, 'b>, Error> {
        self.open_variant(variant, b":[", b"]}")
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Compound<'a, 'b>, Error> {
        Ok(self.open(b"{", b"}"))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Compound<'a, 'b>, Error> {
        Ok(self.open(b"{", b"}"))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'a, 'b>, Error> {
        self.open_variant(variant, b":{", b"}}")
    }
}

/// The kinds of lists.
macro_rules! lists {
    ($($kind:ident: $method:ident,)*) => {
        $(impl ser::$kind for Compound<'_, '_> {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.element(value)
            }

            fn end(self) -> Result<(), Error> {
                self.finish();
                Ok(())
            }
        })*
    };
}

lists! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field,
}

/// The kinds of objects whose names are fixed.
macro_rules! objects {
    ($($kind:ident,)*) => {
        $(impl ser::$kind for Compound<'_, '_> {
            type Ok = ();
            type Error = Error;

            #[inline(always)]
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), Error> {
                self.field(key, value)
            }

            fn end(self) -> Result<(), Error> {
                self.finish();
                Ok(())
            }
        })*
    };
}

objects! {
    SerializeStruct,
    SerializeStructVariant,
}

impl ser::SerializeMap for Compound<'_, '_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.separate();
        let start = self.out.text.len();
        key.serialize(&mut *self.out)?;
        if self.out.text.get(start) == Some(&b'"') {
            Ok(())
        } else {
            Err(Error::custom("key must be a string"))
        }
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.out.text.push(b':');
        value.serialize(&mut *self.out)
    }

    fn end(self) -> Result<(), Error> {
        self.finish();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Serialize;

    use super::append;

    #[derive(Debug, Serialize)]
    struct Everything<'a> {
        plain: &'a str,
        #[serde(rename = "odd \"name\"")]
        odd: Option<char>,
        unit: (),
        tuple: (i64, u64, f64, f32, bool),
        pair: Pair,
        list: Vec<Kind>,
        #[serde(flatten)]
        rest: BTreeMap<String, Option<u8>>,
        empty: [u8; 0],
    }

    #[derive(Debug, Serialize)]
    struct Pair(i128, &'static str);

    #[derive(Debug, Serialize)]
    struct Nothing;

    #[derive(Debug, Serialize)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        PlainOne,
        NewType(u32),
        Tuple(i8, Nothing),
        Object { inner: Box<str> },
    }

    proptest! {
        #[test]
        fn the_text_is_the_same_as_serde_jsons(
            plain: String,
            odd: Option<char>,
            tuple: (i64, u64, f64, f32, bool),
            number: u32,
            small: i8,
            inner: String,
            rest: BTreeMap<String, Option<u8>>,
        ) {
            let value = Everything {
                plain: &plain,
                odd,
                unit: (),
                tuple,
                pair: Pair(i128::from(number) << 70, "\u{7f}\t"),
                list: vec![
                    Kind::PlainOne,
                    Kind::NewType(number),
                    Kind::Tuple(small, Nothing),
                    Kind::Object { inner: inner.into() },
                ],
                rest,
                empty: [],
            };
            let mut text = Vec::new();
            append(&value, &mut text).unwrap();
            let expected = serde_json::to_vec(&value).unwrap();
            prop_assert_eq!(String::from_utf8_lossy(&text), String::from_utf8_lossy(&expected));
        }
    }

    #[test]
    fn what_needs_an_escape_is_found_at_every_place() {
        for length in 0..24 {
            let plain = vec![b'~'; length];
            assert!(!super::needs_escape(&plain), "{length}");
            for (at, byte) in (0..length).flat_map(|at| (0..=255).map(move |byte| (at, byte))) {
                let mut text = plain.clone();
                text[at] = byte;
                let expected = byte < b' ' || byte == b'"' || byte == b'\\';
                assert_eq!(super::needs_escape(&text), expected, "{byte} at {at}");
            }
        }
    }

    #[test]
    fn a_key_that_is_no_text_is_refused() {
        assert!(append(&BTreeMap::from([(1, 2)]), &mut Vec::new()).is_err());
    }
}
