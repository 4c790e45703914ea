//! Reads a pprof profile by its specification, without fdguard's code: gzip, then keys and values.

use std::collections::BTreeMap;
use std::io::Read as _;

/// A message: the values of each field, in their order.
struct Fields(BTreeMap<u64, Vec<Value>>);

enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

/// A sample with resolved strings.
#[derive(Debug)]
pub(crate) struct Sample {
    /// `function file:line`, innermost first.
    pub(crate) stack: Vec<String>,
    /// In the order of [`Profile::types`].
    pub(crate) values: Vec<u64>,
    /// Texts and numbers by their keys.
    pub(crate) labels: BTreeMap<String, String>,
}

pub(crate) struct Profile {
    /// `type/unit`.
    pub(crate) types: Vec<String>,
    pub(crate) samples: Vec<Sample>,
    /// Names of modules.
    pub(crate) modules: Vec<String>,
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a whole number");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number of more than ten bytes");
}

fn varints(mut bytes: &[u8]) -> Vec<u64> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        list.push(varint(&mut bytes));
    }
    list
}

impl Fields {
    fn of(mut bytes: &[u8]) -> Self {
        let mut fields: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = match key & 7 {
                0 => Value::Number(varint(&mut bytes)),
                2 => {
                    let length = usize::try_from(varint(&mut bytes)).unwrap();
                    let (value, rest) = bytes.split_at(length);
                    bytes = rest;
                    Value::Bytes(value.to_vec())
                }
                other => panic!("a profile has no wire type {other}"),
            };
            fields.entry(key >> 3).or_default().push(value);
        }
        Self(fields)
    }

    fn number(&self, field: u64) -> u64 {
        match self.0.get(&field).map(Vec::as_slice) {
            None => 0,
            Some([Value::Number(number)]) => *number,
            Some(_) => panic!("field {field} is one number"),
        }
    }

    fn bytes(&self, field: u64) -> impl Iterator<Item = &[u8]> {
        let values = self.0.get(&field).into_iter().flatten();
        values.map(move |value| match value {
            Value::Bytes(bytes) => bytes.as_slice(),
            Value::Number(_) => panic!("field {field} has a length"),
        })
    }

    fn messages(&self, field: u64) -> impl Iterator<Item = Self> {
        self.bytes(field).map(Self::of)
    }

    fn numbers(&self, field: u64) -> Vec<u64> {
        self.bytes(field).flat_map(varints).collect()
    }

    fn by_id(&self, field: u64) -> BTreeMap<u64, Self> {
        let by_id: BTreeMap<u64, Self> = self
            .messages(field)
            .map(|one| (one.number(1), one))
            .collect();
        assert_eq!(
            by_id.len(),
            self.bytes(field).count(),
            "an id belongs to one"
        );
        assert!(!by_id.contains_key(&0), "0 is no id");
        by_id
    }
}

pub(crate) fn read(compressed: &[u8]) -> Profile {
    let mut bytes = Vec::new();
    let mut gzip = flate2::read::GzDecoder::new(compressed);
    gzip.read_to_end(&mut bytes).expect("gzip");
    let profile = Fields::of(&bytes);
    let texts: Vec<String> = profile
        .bytes(6)
        .map(|text| String::from_utf8(text.to_vec()).expect("UTF-8"))
        .collect();
    assert_eq!(texts[0], "");
    let text = |at: u64| texts[usize::try_from(at).unwrap()].clone();
    let functions = profile.by_id(5);
    let frame = |location: &Fields| {
        let line = location.messages(4).next().expect("a line");
        let function = &functions[&line.number(1)];
        let (name, file) = (text(function.number(2)), text(function.number(4)));
        format!("{name} {file}:{}", line.number(2))
    };
    let mappings = profile.by_id(3);
    let locations: BTreeMap<u64, String> = profile
        .by_id(4)
        .into_iter()
        .map(|(id, location)| {
            let mapping = location.number(2);
            assert!(mapping == 0 || mappings.contains_key(&mapping));
            (id, frame(&location))
        })
        .collect();
    let label = |label: Fields| {
        let value = match label.number(2) {
            0 => label.number(3).to_string(),
            at => text(at),
        };
        (text(label.number(1)), value)
    };
    let sample = |sample: Fields| Sample {
        stack: sample
            .numbers(1)
            .iter()
            .map(|id| locations[id].clone())
            .collect(),
        values: sample.numbers(2),
        labels: sample.messages(3).map(label).collect(),
    };
    let kind = |kind: Fields| format!("{}/{}", text(kind.number(1)), text(kind.number(2)));
    Profile {
        types: profile.messages(1).map(kind).collect(),
        samples: profile.messages(2).map(sample).collect(),
        modules: mappings.values().map(|one| text(one.number(5))).collect(),
    }
}
