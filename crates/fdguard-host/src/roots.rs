//! The directories below which the host may access files of agents. They are opened once, at
//! startup, and everything below them is opened from there: using a path also checks it.

use std::io;
use std::path::{Path, PathBuf};

use fdguard_files::Dir;
use fdguard_files::dir::real;

/// The directories, held open; one descriptor each.
#[derive(Clone, Debug, Default)]
pub struct Roots(Vec<Dir>);

/// Why a path is outside all roots.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutsideRoots {
    /// There are none.
    #[error("file access is disabled: the host was started without --root")]
    NoRoots,
    /// It is relative, has `..` in it, or a link that leads nowhere.
    #[error("{} must be an absolute path without `..`", .0.display())]
    NotWhole(PathBuf),
    /// It is elsewhere.
    #[error("{} is not below any root of the host", .0.display())]
    Elsewhere(PathBuf),
}

/// The location of a path: its root, and the relative path without links.
#[derive(Clone, Debug)]
pub(crate) struct Below {
    pub(crate) root: Dir,
    pub(crate) inner: PathBuf,
}

impl Roots {
    /// Opens them. An error names the path that failed.
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<Self, (PathBuf, io::Error)> {
        let open = |path: &P| {
            let path = path.as_ref();
            Dir::open(path).map_err(|error| (path.to_owned(), error))
        };
        let opened: Result<Vec<Dir>, _> = paths.iter().map(open).collect();
        opened.map(Self)
    }

    /// Whether there are none: then nothing may be touched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Resolves a path with its current links. The result is only a name: opening it follows no
    /// links.
    pub(crate) fn find(&self, path: &Path) -> Result<Below, OutsideRoots> {
        if self.is_empty() {
            return Err(OutsideRoots::NoRoots);
        }
        let real = real(path).ok_or_else(|| OutsideRoots::NotWhole(path.to_owned()))?;
        let below = |root: &Dir| {
            let inner = real.strip_prefix(root.path()).ok()?.to_owned();
            let root = root.clone();
            Some(Below { root, inner })
        };
        let found = self.0.iter().find_map(below);
        found.ok_or_else(|| OutsideRoots::Elsewhere(path.to_owned()))
    }
}

impl Below {
    /// Opens the directory; no component of the path may be a link.
    pub(crate) fn open(&self) -> io::Result<Dir> {
        self.root.open_below(&self.inner)
    }

    /// The same, creating what is missing.
    pub(crate) fn make(&self) -> io::Result<Dir> {
        self.root.make_below(&self.inner)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.root.path().join(&self.inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::{OutsideRoots, Roots};

    #[test]
    fn what_leads_out_of_the_roots_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let (inside, outside) = (base.join("in"), base.join("out"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        symlink(&outside, inside.join("link")).unwrap();
        symlink(base.join("nowhere"), inside.join("dangling")).unwrap();
        let roots = Roots::open(&[&inside]).unwrap();
        assert_eq!(
            roots.find(&inside.join("a/b")).unwrap().path(),
            inside.join("a/b")
        );
        for path in ["link", "link/a", "../inside"].map(|path| inside.join(path)) {
            let refused = roots.find(&path).unwrap_err();
            let is_whole = !path.ends_with("../inside");
            assert_eq!(matches!(refused, OutsideRoots::Elsewhere(_)), is_whole);
        }
        for path in [inside.join("dangling/a"), "relative".into()] {
            let refused = roots.find(&path).unwrap_err();
            assert!(matches!(refused, OutsideRoots::NotWhole(_)), "{refused}");
        }
        let none = Roots::default().find(&inside).unwrap_err();
        assert_eq!(none, OutsideRoots::NoRoots);
    }

    #[test]
    fn a_directory_that_became_a_link_after_it_was_found_is_not_opened() {
        let base = tempfile::tempdir().unwrap();
        let (inside, outside) = (base.path().join("in"), base.path().join("out"));
        std::fs::create_dir_all(inside.join("a/b")).unwrap();
        std::fs::create_dir_all(outside.join("b")).unwrap();
        let roots = Roots::open(&[&inside]).unwrap();
        let found = roots.find(&inside.join("a/b")).unwrap();
        std::fs::rename(inside.join("a"), inside.join("old")).unwrap();
        symlink(&outside, inside.join("a")).unwrap();
        found.open().unwrap_err();
        found.make().unwrap_err();
    }
}
