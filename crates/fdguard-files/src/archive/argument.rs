//! Resolves a path argument to a file and checks whether it may be archived.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use fdguard_core::Text;
use rustix::fs::FileType;

use super::names;
use super::receipt::{ArchiveProblem, ArchiveTrouble};
use crate::dir::{self, Dir};

/// A file to archive.
#[derive(Clone, Debug)]
pub(super) struct NamedFile {
    /// The directory that contains the file.
    pub(super) directory: Rc<Dir>,
    /// Its own name, without the suffixes of an archive.
    pub(super) name: OsString,
    /// Whether the file existed when the archive started.
    pub(super) was_there: bool,
}

impl NamedFile {
    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }
}

/// A path for JSON.
pub(super) fn text(path: &Path) -> Text {
    Text::from(path.as_os_str().as_encoded_bytes())
}

/// Resolves files, opening each directory once.
#[derive(Debug)]
pub(super) struct Finder<'a> {
    archive: &'a Dir,
    follow: bool,
    within: Option<Dir>,
    dirs: BTreeMap<PathBuf, Rc<Dir>>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(archive: &'a Dir, follow: bool, within: Option<Dir>) -> Self {
        Self {
            archive,
            follow,
            within,
            dirs: BTreeMap::new(),
        }
    }

    /// The file that a path refers to.
    pub(super) fn find(&mut self, given: &Path) -> Result<NamedFile, ArchiveProblem> {
        let found = self.split(given)?;
        let entry = found
            .directory
            .stat_entry(&found.name)
            .map_err(|error| unreadable(&error))?;
        let Some(entry) = entry else {
            let name = names::original(&found.name).to_owned();
            return Ok(NamedFile { name, ..found });
        };
        match entry.kind {
            FileType::RegularFile => {
                let name = names::original(&found.name).to_owned();
                Ok(NamedFile {
                    name,
                    was_there: true,
                    ..found
                })
            }
            FileType::Symlink if self.follow => {
                let real = given.canonicalize().map_err(|error| unreadable(&error))?;
                self.find(&real)
            }
            kind => Err(refused(kind)),
        }
    }

    /// Directory and name of a path, if both may be used.
    fn split(&mut self, given: &Path) -> Result<NamedFile, ArchiveProblem> {
        let Some(name) = given.file_name() else {
            return Err(refused(FileType::Directory));
        };
        let parent = given.parent().filter(|path| !path.as_os_str().is_empty());
        let directory = self.directory(parent.unwrap_or(Path::new(".")))?;
        if directory.id() == self.archive.id() {
            return Err(ArchiveProblem::new(
                ArchiveTrouble::InArchive,
                "already in the archive",
                "name a file outside the archive",
            ));
        }
        Ok(NamedFile {
            directory,
            name: name.to_owned(),
            was_there: false,
        })
    }

    fn directory(&mut self, path: &Path) -> Result<Rc<Dir>, ArchiveProblem> {
        if let Some(directory) = self.dirs.get(path) {
            return Ok(Rc::clone(directory));
        }
        let opened = match &self.within {
            Some(within) => open_within(within, path)?,
            None => Dir::open(path).map_err(|error| unreadable(&error))?,
        };
        let directory = Rc::new(opened);
        self.dirs.insert(path.to_owned(), Rc::clone(&directory));
        Ok(directory)
    }
}

/// Opens a directory below another one. Links in the path are resolved first, and the result is
/// opened without following any: a link that appears in between is rejected.
fn open_within(within: &Dir, path: &Path) -> Result<Dir, ArchiveProblem> {
    let outside = || {
        ArchiveProblem::new(
            ArchiveTrouble::Outside,
            format!("outside {}", within.path().display()),
            "name a file in that directory",
        )
    };
    let real = path.canonicalize().map_err(|error| unreadable(&error))?;
    let inner = real.strip_prefix(within.path());
    let inner = inner.map_err(|_elsewhere| outside())?;
    within.open_below(inner).map_err(|error| {
        if dir::is_way_out(&error) {
            outside()
        } else {
            unreadable(&error)
        }
    })
}

/// The file could not be opened.
pub(super) fn unreadable(error: &std::io::Error) -> ArchiveProblem {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound => ArchiveTrouble::NotFound,
        _ => ArchiveTrouble::Unreadable,
    };
    let remedy = match kind {
        ArchiveTrouble::NotFound => "name an existing file",
        _ => "run as the owner of the file or with sudo",
    };
    ArchiveProblem::new(kind, format!("cannot open: {error}"), remedy)
}

/// Only regular files are archived.
pub(super) fn refused(kind: FileType) -> ArchiveProblem {
    match kind {
        FileType::Directory => ArchiveProblem::new(
            ArchiveTrouble::IsDirectory,
            "is a directory",
            "name the files in it",
        ),
        FileType::Symlink => ArchiveProblem::new(
            ArchiveTrouble::IsLink,
            "is a symbolic link",
            "name the target of the link, or use --follow",
        ),
        _ => ArchiveProblem::new(
            ArchiveTrouble::NotAFile,
            "not a regular file",
            "name a regular file",
        ),
    }
}
