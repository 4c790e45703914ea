//! Content-addressed backups: existing content is not written again, ten backups are kept, and each
//! one is read back before it counts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use fdguard_core::hex;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::Error;
use crate::holding::HolderRole;

/// The most backups kept of one database.
const KEPT: usize = 10;
/// The contents list of a backup.
const LIST: &str = "backup.json";

/// The contents of a backup.
#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    schema: String,
    taken_at: Timestamp,
    files: Vec<Content>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    name: String,
    size: u64,
    sha256: String,
}

/// Backs up a database with its side files and returns the directory.
pub fn make(database: &Path, backups: &Path) -> Result<PathBuf, Error> {
    let failed = |error: io::Error| Error::io(backups, "cannot create a backup in", error);
    let files = contents(database).map_err(failed)?;
    private_dir(backups).map_err(failed)?;
    let dir = backups.join(name_of(&files));
    if is_whole(&dir, &files) {
        return Ok(dir);
    }
    let part = backups.join(format!(".part-{}", std::process::id()));
    let written = fill(database, &part, &files).and_then(|()| {
        // An incomplete backup is useless.
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::rename(&part, &dir)?;
        sync_dir(backups)
    });
    if let Err(error) = written {
        drop(fs::remove_dir_all(&part));
        return Err(failed(error));
    }
    keep_few(backups, &dir).map_err(failed)?;
    Ok(dir)
}

/// The name is derived from all of the content.
fn name_of(files: &[Content]) -> String {
    let mut hash = Sha256::new();
    for file in files {
        hash.update(format!("{} {} {}\n", file.name, file.size, file.sha256));
    }
    hex::encode(&hash.finalize())[..32].to_owned()
}

fn contents(database: &Path) -> io::Result<Vec<Content>> {
    let mut files = Vec::new();
    for role in [
        HolderRole::Main,
        HolderRole::Wal,
        HolderRole::Shm,
        HolderRole::Journal,
    ] {
        match digest(&role.path(database)) {
            Ok((size, sha256)) => files.push(Content {
                name: format!("database{}", role.suffix()),
                size,
                sha256,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound && role != HolderRole::Main => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

fn digest(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let mut size = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((size, hex::encode(&hash.finalize())));
        }
        size += read as u64;
        hash.update(&buffer[..read]);
    }
}

fn private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

fn fill(database: &Path, part: &Path, files: &[Content]) -> io::Result<()> {
    if part.exists() {
        fs::remove_dir_all(part)?;
    }
    private_dir(part)?;
    for file in files {
        let suffix = file.name.strip_prefix("database").unwrap_or_default();
        let mut from = database.as_os_str().to_owned();
        from.push(suffix);
        let to = part.join(&file.name);
        let mut target = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&to)?;
        io::copy(&mut File::open(PathBuf::from(from))?, &mut target)?;
        target.sync_all()?;
        if digest(&to)? != (file.size, file.sha256.clone()) {
            let text = "the copy differs from the original: it was modified meanwhile, or the disk is failing";
            return Err(io::Error::other(text));
        }
    }
    let contents = Contents {
        schema: "fdguard.backup/1".to_owned(),
        taken_at: Timestamp::now(),
        files: files.to_vec(),
    };
    let mut list = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(part.join(LIST))?;
    list.write_all(serde_json::to_string_pretty(&contents)?.as_bytes())?;
    list.sync_all()?;
    sync_dir(part)
}

/// Whether a backup with this content exists, byte by byte.
fn is_whole(dir: &Path, files: &[Content]) -> bool {
    read_list(dir).is_some_and(|contents| contents.files == files)
        && files.iter().all(|file| {
            digest(&dir.join(&file.name))
                .is_ok_and(|found| found == (file.size, file.sha256.clone()))
        })
}

fn read_list(dir: &Path) -> Option<Contents> {
    serde_json::from_slice(&fs::read(dir.join(LIST)).ok()?).ok()
}

pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Removes the oldest surplus backups: only directories with a contents list written by fdguard.
fn keep_few(backups: &Path, newest: &Path) -> io::Result<()> {
    let mut found = Vec::new();
    for entry in fs::read_dir(backups)? {
        let path = entry?.path();
        if let Some(contents) = read_list(&path).filter(|_| path != newest) {
            found.push((contents.taken_at, path));
        }
    }
    found.sort();
    let many = (found.len() + 1).saturating_sub(KEPT);
    for (_, path) in found.into_iter().take(many) {
        fs::remove_dir_all(path)?;
    }
    Ok(())
}
