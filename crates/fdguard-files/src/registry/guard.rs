//! Checks whether the open files are still those at their paths. It uses only `stat`, which cannot
//! drop a lock.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::error::Error;
use crate::holding::HolderRole;

/// Device and inode.
pub(super) type Id = (u64, u64);

/// Device and inode of what is at a path.
pub(super) fn id_at(path: &Path) -> Option<Id> {
    let meta = path.metadata().ok()?;
    Some((meta.dev(), meta.ino()))
}

/// The opened files: the database, its WAL and the WAL index. While a connection exists, none of
/// them may legitimately be replaced.
#[derive(Debug)]
pub(super) struct Guard {
    opened: Vec<(PathBuf, Id)>,
}

impl Guard {
    /// The current files, given a connection that has read.
    pub(super) fn open(database: &Path) -> Result<Self, Error> {
        let files =
            [HolderRole::Main, HolderRole::Wal, HolderRole::Shm].map(|role| role.path(database));
        let opened = files.into_iter().map(|path| match id_at(&path) {
            Some(id) => Ok((path, id)),
            None => Err(Error::Replaced {
                path,
                what: "deleted",
            }),
        });
        Ok(Self {
            opened: opened.collect::<Result<_, _>>()?,
        })
    }

    /// Fails if one of them is no longer the file at its path.
    pub(super) fn check(&self) -> Result<(), Error> {
        for (path, id) in &self.opened {
            let what = match id_at(path) {
                Some(now) if now == *id => continue,
                Some(_another) => "replaced",
                None => "deleted",
            };
            return Err(Error::Replaced {
                path: path.clone(),
                what,
            });
        }
        Ok(())
    }

    /// Device and inode of the database.
    pub(super) fn id(&self) -> Option<Id> {
        self.opened.first().map(|(_, id)| *id)
    }
}
