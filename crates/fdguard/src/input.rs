//! Files named on the command line: one size limit, one error line and one exit code for all
//! commands.

use std::fs::File;
use std::path::Path;

use fdguard_diagnose::recording::Replay;
use fdguard_process::input_file;
pub(crate) use fdguard_process::input_file::{InputError, SAVED, WRITTEN};

use crate::exit::HintedError;

const HINT: &str = "name another file";

/// Opens a file to read it in pieces.
pub(crate) fn open(path: &Path) -> anyhow::Result<File> {
    input_file::open(path).map_err(|error| refused(path, error))
}

/// Opens a recording; `-` is standard input.
pub(crate) fn open_recording(path: &Path) -> anyhow::Result<Replay> {
    if path == Path::new("-") {
        return Ok(Replay::new("standard input", Box::new(std::io::stdin()))?);
    }
    let name = path.display().to_string();
    Ok(Replay::new(&name, Box::new(open(path)?))?)
}

/// The whole file, if it has at most this many bytes.
pub(crate) fn read(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    input_file::read(path, most).map_err(|error| refused(path, error))
}

/// Reads a file written by a person, as text.
pub(crate) fn read_text(path: &Path) -> anyhow::Result<String> {
    input_file::read_text(path, WRITTEN).map_err(|error| refused(path, error))
}

/// The same for a file that may not exist yet.
#[cfg(feature = "trace")]
pub(crate) fn read_text_if_present(path: &Path) -> anyhow::Result<Option<String>> {
    match input_file::read_text(path, WRITTEN) {
        Err(error) if error.is_absent() => Ok(None),
        read => read.map(Some).map_err(|error| refused(path, error)),
    }
}

/// An endless file is a usage error; an unreadable file gives exit code 3.
pub(crate) fn refused(path: &Path, error: InputError) -> anyhow::Error {
    let name = path.display();
    match error {
        InputError::Io(error) => anyhow::Error::new(error).context(name.to_string()),
        error if error.is_mistake() => HintedError::usage(format!("{name}: {error}"), HINT).into(),
        error => HintedError::look(format!("{name}: {error}"), HINT).into(),
    }
}
