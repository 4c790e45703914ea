//! One descriptor as its holder knows it, and the comparison with a tool's record.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::report::text;

/// A victim's report about one of its descriptors. Contains only what it knows for certain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VictimHolding {
    /// Its number.
    pub fd: u32,
    /// How it was made, for messages.
    #[serde(default)]
    pub what: String,
    /// Its class in the contract; `None` if only the number is known.
    pub class: Option<String>,
    /// Its target, if that is a path and text.
    #[serde(default)]
    pub target: Option<String>,
    /// `r`, `w`, `rw` or `path`.
    #[serde(default)]
    pub mode: Option<String>,
    /// Whether it closes at exec.
    #[serde(default)]
    pub cloexec: Option<bool>,
    /// Whether it is a file whose last name is gone. Meaningless for memory files, which never had
    /// a name.
    #[serde(default)]
    pub deleted: bool,
    /// Members that the tool's detail must contain.
    #[serde(default)]
    pub detail: Map<String, Value>,
}

impl VictimHolding {
    /// Adds one member of the detail.
    pub fn with(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        self.detail.insert(key.to_owned(), value.into());
        self
    }

    /// Sets the path, as target (if it is text) and in the detail.
    pub fn at(&mut self, path: &Path) -> &mut Self {
        self.target = path.to_str().map(str::to_owned);
        self.with("path", text(path))
    }

    /// Marks the file's last name as gone.
    pub fn deleted(&mut self) -> &mut Self {
        self.deleted = true;
        self
    }

    /// Every point in which a tool's record (an element of the snapshot's `fds`) contradicts this
    /// holding. Fields that the victim did not set are not compared.
    #[must_use]
    pub fn disagreements(&self, record: &Value) -> Vec<String> {
        let mut found = Vec::new();
        let mut check = |key: &str, expected: Value| {
            if !contains(&record[key], &expected) {
                found.push(format!(
                    "descriptor {} ({}): {key} should be {expected}, is {}",
                    self.fd, self.what, record[key]
                ));
            }
        };
        check("fd", self.fd.into());
        let Some(class) = &self.class else {
            return found;
        };
        check("class", class.as_str().into());
        if let Some(target) = &self.target {
            check("target", target.as_str().into());
        }
        if let Some(mode) = &self.mode {
            check("mode", mode.as_str().into());
        }
        if let Some(cloexec) = self.cloexec {
            check("cloexec", cloexec.into());
        }
        if class != "memfd" && class != "other:secretmem" {
            check("deleted", self.deleted.into());
        }
        for (key, expected) in &self.detail {
            if !contains(&record["detail"][key], expected) {
                found.push(format!(
                    "descriptor {} ({}): detail.{key} should contain {expected}, is {}",
                    self.fd, self.what, record["detail"][key]
                ));
            }
        }
        found
    }
}

/// Whether `actual` contains `expected`: objects may have more members, lists more elements (but an
/// empty list means an empty list), numbers compare by value.
fn contains(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => expected
            .iter()
            .all(|(key, value)| contains(actual.get(key).unwrap_or(&Value::Null), value)),
        (Value::Array(actual), Value::Array(expected)) if expected.is_empty() => actual.is_empty(),
        (Value::Array(actual), Value::Array(expected)) => expected
            .iter()
            .all(|value| actual.iter().any(|candidate| contains(candidate, value))),
        (Value::Number(actual), Value::Number(expected)) => {
            actual == expected || actual.as_f64() == expected.as_f64()
        }
        _ => actual == expected,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{VictimHolding, contains};

    #[test]
    fn more_members_and_elements_are_no_contradiction() {
        assert!(contains(
            &json!([{"pid": 1, "fd": 2, "writes": true}, {"pid": 3, "fd": 4}]),
            &json!([{"pid": 1, "fd": 2}])
        ));
        assert!(contains(&json!(0.0), &json!(0)));
    }

    #[test]
    fn an_empty_list_and_null_mean_just_that() {
        assert!(!contains(&json!([1]), &json!([])));
        assert!(!contains(&json!(null), &json!([])));
        assert!(contains(&json!(null), &json!(null)));
        assert!(!contains(&json!("x"), &json!(null)));
    }

    #[test]
    fn a_contradiction_is_named_with_its_descriptor() {
        let mut holding = VictimHolding {
            fd: 7,
            what: "a counter".to_owned(),
            class: Some("eventfd".to_owned()),
            ..VictimHolding::default()
        };
        holding.with("count", 3);
        let record = json!({"fd": 7, "class": "eventfd", "deleted": false, "detail": {"count": 4}});
        assert_eq!(
            holding.disagreements(&record),
            ["descriptor 7 (a counter): detail.count should contain 3, is 4"]
        );
    }
}
