//! The evidence bundle: a directory or an archive that appears whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fdguard_core::evidence::Evidence;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::pieces::pieces;
use crate::exit::HintedError;

/// Only the user may read evidence.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// One file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its name.
    pub(super) name: &'static str,
    /// Its contents.
    pub(super) bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Dir,
    Tar,
    TarZst,
}

/// The target of a bundle, created before there is anything to put there: a long watch must not end
/// with "no such directory". An unfinished bundle is removed on drop.
#[derive(Debug)]
pub(super) struct BundleTarget {
    path: PathBuf,
    part: PathBuf,
    form: Form,
    finished: bool,
}

impl BundleTarget {
    /// Creates the target.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let form = form(path);
        let Some(name) = path.file_name().filter(|_| !path.as_os_str().is_empty()) else {
            let hint = "give -o a new directory, or a file that ends in .tar.zst";
            return Err(HintedError::look(
                format!("{}: not a name for a bundle", path.display()),
                hint,
            )
            .into());
        };
        refuse_what_is_there(path, form)?;
        let mut part = std::ffi::OsString::from(".");
        part.push(name);
        part.push(format!(".{}.part", std::process::id()));
        let part = path.with_file_name(part);
        let made = match form {
            Form::Dir => DirBuilder::new().mode(DIR_MODE).create(&part),
            Form::Tar | Form::TarZst => create(&part).map(drop),
        };
        made.with_context(|| path.display().to_string())?;
        Ok(Self {
            path: path.to_owned(),
            part,
            form,
            finished: false,
        })
    }

    /// Writes the evidence.
    pub(super) fn keep(self, evidence: &Evidence) -> anyhow::Result<()> {
        self.fill(&pieces(evidence)?)
    }

    /// Writes everything, then renames it.
    fn fill(mut self, pieces: &[Piece]) -> anyhow::Result<()> {
        let written = match self.form {
            Form::Dir => self.fill_dir(pieces),
            Form::Tar => self.fill_archive(pieces, false),
            Form::TarZst => self.fill_archive(pieces, true),
        };
        let named = written.and_then(|()| Ok(fs::rename(&self.part, &self.path)?));
        self.finished = named.is_ok();
        named.with_context(|| self.path.display().to_string())
    }

    fn fill_dir(&self, pieces: &[Piece]) -> anyhow::Result<()> {
        for piece in pieces {
            let mut file = create(&self.part.join(piece.name))?;
            file.write_all(&piece.bytes)?;
            file.sync_all()?;
        }
        Ok(())
    }

    fn fill_archive(&self, pieces: &[Piece], is_compressed: bool) -> anyhow::Result<()> {
        let mut bytes = tar_of(&archive_dir(&self.path), pieces)?;
        if is_compressed {
            bytes = compress_to_vec(bytes.as_slice(), CompressionLevel::Fastest);
        }
        let mut file = OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&self.part)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        Ok(())
    }
}

impl Drop for BundleTarget {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // The first error has already been reported.
        drop(match self.form {
            Form::Dir => fs::remove_dir_all(&self.part),
            Form::Tar | Form::TarZst => fs::remove_file(&self.part),
        });
    }
}

fn form(path: &Path) -> Form {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    if name.ends_with(".tar.zst") || name.ends_with(".tzst") {
        Form::TarZst
    } else if name.ends_with(".tar") {
        Form::Tar
    } else {
        Form::Dir
    }
}

/// Refuses to mix evidence with other files or to overwrite them.
fn refuse_what_is_there(path: &Path, form: Form) -> anyhow::Result<()> {
    let Ok(there) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    let shown = path.display();
    let (problem, hint) = match form {
        Form::Dir if there.is_dir() => {
            let is_empty = fs::read_dir(path)
                .with_context(|| shown.to_string())?
                .next()
                .is_none();
            if is_empty {
                return Ok(());
            }
            ("already exists and is not empty", "name a new directory")
        }
        Form::Dir => (
            "already exists and is not a directory",
            "name a new directory, or a file that ends in .tar.zst",
        ),
        Form::Tar | Form::TarZst if there.is_file() => return Ok(()),
        Form::Tar | Form::TarZst => ("already exists and is not a file", "name another file"),
    };
    Err(HintedError::look(format!("{shown}: {problem}"), hint).into())
}

fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)
}

/// The directory that the archive unpacks into: its own name without the endings.
fn archive_dir(path: &Path) -> String {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let ends = [".tar.zst", ".tzst", ".tar"];
    let stem = ends
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(&name);
    let stem = stem.trim_start_matches('.');
    if stem.is_empty() {
        "evidence".to_owned()
    } else {
        stem.to_owned()
    }
}

/// Omits times, users and groups: they are not needed and would identify the author.
fn tar_of(dir: &str, pieces: &[Piece]) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for piece in pieces {
        let mut header = tar::Header::new_gnu();
        header.set_size(piece.bytes.len() as u64);
        header.set_mode(FILE_MODE);
        header.set_mtime(0);
        let name = format!("{dir}/{}", piece.name);
        archive.append_data(&mut header, name, piece.bytes.as_slice())?;
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Form, archive_dir, form};

    #[test]
    fn the_name_says_what_kind_of_bundle_it_is() {
        for (name, expected, dir) in [
            ("x/evidence.tar.zst", Form::TarZst, "evidence"),
            ("e.tzst", Form::TarZst, "e"),
            ("e.tar", Form::Tar, "e"),
            ("evidence", Form::Dir, "evidence"),
            (".tar.zst", Form::TarZst, "evidence"),
        ] {
            assert_eq!(form(Path::new(name)), expected, "{name}");
            assert_eq!(archive_dir(Path::new(name)), dir, "{name}");
        }
    }
}
