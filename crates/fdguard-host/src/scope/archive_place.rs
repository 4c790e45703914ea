//! The archive directory of a scope: resolved when the scope is opened, opened when it is used, and
//! never through a link that appeared in between.

use std::io;
use std::path::{Path, PathBuf};

use fdguard_files::Dir;

use super::root::ScopeRoot;
use crate::roots::{Below, OutsideRoots, Roots};

/// Default archive directory, in the scope's root.
const DEFAULT: &str = "archive";

/// The place.
#[derive(Clone, Debug)]
pub(super) enum ArchivePlace {
    /// In the scope's root.
    InScope,
    /// Below one of the host's roots.
    Below(Below),
    /// Anywhere, for a host without roots.
    Path(PathBuf),
}

impl ArchivePlace {
    pub(super) fn find(to: Option<&Path>, roots: Option<&Roots>) -> Result<Self, OutsideRoots> {
        Ok(match (to, roots) {
            (None, _) => Self::InScope,
            (Some(to), Some(roots)) => Self::Below(roots.find(to)?),
            (Some(to), None) => Self::Path(to.to_owned()),
        })
    }

    /// Opens it and creates what is missing. `scope` is the scope's root.
    pub(super) fn make(&self, scope: &Dir) -> io::Result<Dir> {
        match self {
            Self::InScope => scope.make_below(Path::new(DEFAULT)),
            Self::Below(below) => below.make(),
            Self::Path(path) => Dir::make(path),
        }
    }

    /// Its path, for people.
    pub(super) fn path(&self, root: &ScopeRoot) -> PathBuf {
        match self {
            Self::InScope => root.path().join(DEFAULT),
            Self::Below(below) => below.path(),
            Self::Path(path) => path.clone(),
        }
    }
}
