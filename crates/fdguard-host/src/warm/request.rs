//! What the warm interpreter is asked for, as one message. Pure.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use fdguard_process::plan::Plan;
use fdguard_process::tree::Offer;
use serde::Serialize;

use crate::Error;

/// A session. Names and values may be any bytes: each is a character of the first 256.
#[derive(Debug, Serialize)]
pub(super) struct Request {
    /// Our program and its words; the interpreter adds the session's number.
    keeper: Vec<String>,
    folder: String,
    environment: Vec<(String, String)>,
    terminal: bool,
    ready: String,
}

impl Request {
    pub(super) fn new(
        plan: &Plan,
        ready: &str,
        keeper: &Path,
        offer: &Offer,
    ) -> Result<Self, Error> {
        let folder = match &plan.folder {
            Some(folder) => folder.clone(),
            None => std::env::current_dir().map_err(Error::io("our own folder"))?,
        };
        let words = offer.words();
        let words = words.iter().map(|word| characters(word));
        let program = [characters(keeper.as_os_str()), "__keeper".to_owned()];
        let variables = plan.environment.iter();
        Ok(Self {
            keeper: program.into_iter().chain(words).collect(),
            folder: characters(folder.as_os_str()),
            environment: variables
                .map(|(name, value)| (characters(name), characters(value)))
                .collect(),
            terminal: plan.terminal,
            ready: ready.to_owned(),
        })
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        // It has no maps with other keys and no numbers: this cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
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
}
