//! A request to the warm interpreter, as one message. Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use fdguard_process::plan::Plan;
use fdguard_process::tree::Offer;
use serde::Serialize;

use crate::Error;

/// A session. Names and values may be any bytes: each is a character of the first 256.
#[derive(Debug, Serialize)]
pub(super) struct Request {
    /// For the keeper, which does not read the rest.
    #[serde(skip)]
    words: Vec<OsString>,
    #[serde(rename = "folder")]
    dir: String,
    environment: Vec<(String, String)>,
    terminal: bool,
    ready: String,
}

impl Request {
    pub(super) fn new(plan: &Plan, ready: &str, offer: &Offer) -> Result<Self, Error> {
        let dir = match &plan.dir {
            Some(dir) => dir.clone(),
            None => {
                std::env::current_dir().map_err(Error::io("cannot read the current directory"))?
            }
        };
        let variables = plan.environment.iter();
        Ok(Self {
            words: offer.words(),
            dir: characters(dir.as_os_str()),
            environment: variables
                .map(|(name, value)| (characters(name), characters(value)))
                .collect(),
            terminal: plan.terminal,
            ready: ready.to_owned(),
        })
    }

    /// The keeper's arguments, each followed by a NUL byte, one more NUL, and the session's part.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let words = self.words.iter().flat_map(|word| [word.as_bytes(), b"\0"]);
        // It has no maps with other keys and no numbers: this cannot fail.
        let session = serde_json::to_vec(self).unwrap_or_default();
        let parts = words.chain([&b"\0"[..], &session]);
        parts.collect::<Vec<_>>().concat()
    }
}

fn characters(text: &OsStr) -> String {
    text.as_bytes()
        .iter()
        .map(|byte| char::from(*byte))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_byte_is_a_character() {
        assert_eq!(
            characters(OsStr::from_bytes(b"a\xff\xc3\xa4")),
            "a\u{ff}\u{c3}\u{a4}"
        );
    }

    #[test]
    fn a_keeper_finds_its_words_before_the_session_s_part() {
        let request = Request {
            words: vec!["a=1".into(), "leaf=/x".into()],
            dir: "/".to_owned(),
            environment: vec![("A".to_owned(), "b".to_owned())],
            terminal: false,
            ready: "r".to_owned(),
        };
        let expected = "a=1\0leaf=/x\0\0{\"folder\":\"/\",\"environment\":[[\"A\",\"b\"]],\"terminal\":false,\"ready\":\"r\"}";
        assert_eq!(String::from_utf8(request.bytes()).unwrap(), expected);
    }
}
