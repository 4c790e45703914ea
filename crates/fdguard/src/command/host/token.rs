//! The access token of the host: from the environment, or from a private file.

use std::fs;
use std::io::Read as _;

use fdguard_core::bearer::BearerToken;
use fdguard_host::environment::TOKEN_FD;
use fdguard_process::listen::activation;

use crate::cli::HostArgs;
use crate::command::token_file::{default_file, read_or_make};
use crate::exit::HintedError;

/// Takes precedence over the file.
const VARIABLE: &str = fdguard_host::environment::TOKEN;
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
        None => default_file(|name| std::env::var_os(name), "host.token").ok_or_else(|| {
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

/// The token from the environment, which [`super::secrecy`] passed across the exec.
fn handed() -> Option<Vec<u8>> {
    let fd = activation::take_numbered(TOKEN_FD)?;
    let mut text = Vec::new();
    let read = fs::File::from(fd).take(LONGEST).read_to_end(&mut text);
    read.ok().map(|_| text).filter(|text| !text.is_empty())
}
