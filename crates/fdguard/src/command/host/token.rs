//! The access token: from the environment, from a file, or newly generated into a private file.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use fdguard_core::bearer::BearerToken;
use fdguard_core::hex;
use fdguard_host::environment::TOKEN_FD;
use fdguard_process::listen::activation;
use fdguard_process::random;
use rustix::fs::OFlags;

use crate::cli::HostArgs;
use crate::exit::HintedError;

/// Takes precedence over the file.
const VARIABLE: &str = fdguard_host::environment::TOKEN;
/// 256 bits cannot be guessed.
const BYTES: usize = 32;
/// More than the length of a token and its newline.
const LONGEST: u64 = 4096;

/// A token, and where it can be read. Never print the token itself: it would stay in logs.
#[derive(Debug)]
pub(super) struct FoundToken {
    pub(super) token: BearerToken,
    pub(super) from: String,
}

/// The token in effect; `None` with `--no-token`.
pub(super) fn find(args: &HostArgs) -> anyhow::Result<Option<FoundToken>> {
    if args.access.no_token {
        return Ok(None);
    }
    let handed = handed();
    if let Some(text) = handed.filter(|_| args.access.token_file.is_none()) {
        let token = BearerToken::new(&text).map_err(|why| {
            HintedError::usage(
                format!("${VARIABLE}: {why}"),
                "use a token of at least 16 characters",
            )
        })?;
        let from = format!("${VARIABLE}");
        return Ok(Some(FoundToken { token, from }));
    }
    let path = match &args.access.token_file {
        Some(path) => path.clone(),
        None => default_file(|name| std::env::var_os(name)).ok_or_else(|| {
            let message = "cannot store the token: $HOME is not set";
            HintedError::usage(message, "name a file with --token-file FILE")
        })?,
    };
    let token = read_or_make(&path).map_err(|error| {
        let message = format!("--token-file {}: {error}", path.display());
        let hint = "name a file that you own and only you can read (chmod 600)";
        HintedError::usage(message, hint)
    })?;
    let from = path.display().to_string();
    Ok(Some(FoundToken { token, from }))
}

/// In the runtime directory, else in the state directory. Relative values are ignored, as the
/// specification requires.
fn default_file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = variable(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let dir = absolute("XDG_RUNTIME_DIR")
        .or_else(|| absolute("XDG_STATE_HOME"))
        .or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(dir?.join("fdguard/host.token"))
}

/// The token from the environment, which [`super::secrecy`] passed across the exec.
fn handed() -> Option<Vec<u8>> {
    let fd = activation::take_numbered(TOKEN_FD)?;
    let mut text = Vec::new();
    let read = fs::File::from(fd).take(LONGEST).read_to_end(&mut text);
    read.ok().map(|_| text).filter(|text| !text.is_empty())
}

fn read_or_make(path: &Path) -> io::Result<BearerToken> {
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
        return Err(format!("owned by user {owner}, but the host runs as {own}"));
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
            assert_eq!(refused, "owned by user 65534, but the host runs as 0");
        }
    }

    #[test]
    fn relative_dirs_are_not_believed() {
        let of = |pairs: &'static [(&str, &str)]| {
            default_file(|name| {
                let found = pairs.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| value.into())
            })
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
