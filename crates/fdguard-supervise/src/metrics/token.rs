//! The source of the token that lets a caller see names.

use std::env;
use std::path::PathBuf;
use std::str::FromStr;

use fdguard_core::bearer::BearerToken;

use fdguard_process::input_file;

/// Where the token comes from. Never from the command line itself, which every user can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// `file:PATH`
    File(PathBuf),
    /// `env:NAME`
    Environment(String),
}

impl FromStr for TokenSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            Some(("env", name)) if !name.is_empty() && !name.contains(['=', '\0']) => {
                Ok(Self::Environment(name.to_owned()))
            }
            _ => Err("use file:PATH or env:NAME".to_owned()),
        }
    }
}

/// Reads the token, once, before the loop.
pub fn read(source: &TokenSource) -> Result<BearerToken, String> {
    match source {
        TokenSource::File(path) => {
            let text = input_file::read(path, input_file::TOKEN)
                .map_err(|why| format!("{}: {why}", path.display()))?;
            BearerToken::new(&text).map_err(|why| format!("{}: {why}", path.display()))
        }
        TokenSource::Environment(name) => {
            let text = env::var(name).map_err(|why| format!("{name}: {why}"))?;
            BearerToken::new(text.as_bytes()).map_err(|why| format!("{name}: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{TokenSource, read};

    #[test]
    fn sources_are_files_and_variables() {
        assert_eq!(
            "env:TOKEN".parse(),
            Ok(TokenSource::Environment("TOKEN".into()))
        );
        assert_eq!("file:/a/b".parse(), Ok(TokenSource::File("/a/b".into())));
        for bad in ["", "secret", "env:", "file:", "env:a=b"] {
            assert!(bad.parse::<TokenSource>().is_err(), "{bad}");
        }
        let missing = read(&TokenSource::File("/nowhere/token".into())).unwrap_err();
        assert!(missing.starts_with("/nowhere/token: "), "{missing}");
    }
}
