//! An access token in a private file: read, or newly generated.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use fdguard_core::bearer::BearerToken;
use fdguard_core::hex;
use fdguard_process::random;
use rustix::fs::OFlags;

/// 256 bits cannot be guessed.
const BYTES: usize = 32;
/// More than the length of a token and its newline.
const LONGEST: u64 = 4096;

/// In the runtime directory, else in the state directory. Relative values are ignored, as the
/// specification requires.
pub(super) fn default_file(
    variable: impl Fn(&str) -> Option<OsString>,
    file: &str,
) -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = variable(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let dir = absolute("XDG_RUNTIME_DIR")
        .or_else(|| absolute("XDG_STATE_HOME"))
        .or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(dir?.join("fdguard").join(file))
}

/// Reads a token from a private file, or creates it there.
pub(super) fn read_or_make(path: &Path) -> io::Result<BearerToken> {
    // Open once for the checks and the read, so that a later replacement does not matter. Does not
    // block on a pipe.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return make(path),
        opened => opened?,
    };
    let found = file.metadata()?;
    check(&found, rustix::process::geteuid().as_raw())
        .map_err(|why| io::Error::new(io::ErrorKind::PermissionDenied, why))?;
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text)?;
    BearerToken::new(&text).map_err(io::Error::other)
}

/// Rejects a file that another user can read or has written.
fn check(found: &fs::Metadata, own: u32) -> Result<(), String> {
    let mode = found.mode() & 0o777;
    if !found.is_file() {
        return Err("not a regular file".to_owned());
    }
    if found.uid() != own {
        let owner = found.uid();
        return Err(format!("owned by user {owner}, but fdguard runs as {own}"));
    }
    if mode & 0o077 != 0 {
        return Err(format!("other users can open it (mode {mode:04o})"));
    }
    Ok(())
}

fn make(path: &Path) -> io::Result<BearerToken> {
    if let Some(dir) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let text = hex::encode(&random::bytes::<BYTES>()?);
    // Do not write to a link or to a file that was put there meanwhile.
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(format!("{text}\n").as_bytes())?;
    BearerToken::new(text.as_bytes()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::{check, default_file, read_or_make};

    #[test]
    fn a_new_token_is_for_its_owner_alone_and_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/token");
        read_or_make(&path).unwrap();
        let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path) & 0o777, 0o600);
        assert_eq!(mode(path.parent().unwrap()) & 0o777, 0o700);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.trim().len(), 64);
        let again = read_or_make(&path).unwrap();
        assert!(again.allows(Some(format!("Bearer {}", text.trim()).as_bytes())));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = read_or_make(&path).unwrap_err().to_string();
        assert_eq!(refused, "other users can open it (mode 0640)");
        let meta = fs::metadata(&path).unwrap();
        let refused = check(&meta, meta.uid() + 1).unwrap_err();
        assert!(refused.starts_with("owned by user"), "{refused}");
        let refused = read_or_make(dir.path()).unwrap_err().to_string();
        assert_eq!(refused, "not a regular file");
        if rustix::process::geteuid().is_root() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            let refused = read_or_make(&path).unwrap_err().to_string();
            assert_eq!(refused, "owned by user 65534, but fdguard runs as 0");
        }
    }

    #[test]
    fn relative_dirs_are_not_believed() {
        let of = |pairs: &'static [(&str, &str)]| {
            default_file(
                |name: &str| {
                    let found = pairs.iter().find(|(key, _)| *key == name);
                    found.map(|(_, value)| value.into())
                },
                "host.token",
            )
        };
        assert_eq!(of(&[]), None);
        let found = of(&[("XDG_RUNTIME_DIR", "run"), ("HOME", "/home/a")]);
        assert_eq!(
            found,
            Some("/home/a/.local/state/fdguard/host.token".into())
        );
        let found = of(&[("XDG_RUNTIME_DIR", "/run/user/1")]);
        assert_eq!(found, Some("/run/user/1/fdguard/host.token".into()));
    }
}
