//! Files with headers for a server: they keep secrets out of the command line.

use std::path::Path;

use fdguard_serve::ExtraHeaders;

use crate::exit::HintedError;

/// The headers in the file that this option names; none without a file.
pub(super) fn read_headers(file: Option<&Path>, option: &str) -> anyhow::Result<ExtraHeaders> {
    let Some(path) = file else {
        return Ok(ExtraHeaders::default());
    };
    let wrong = |why: String| {
        let message = format!("{option} {}: {why}", path.display());
        HintedError::usage(
            message,
            "write one header per line, such as X-Scope-OrgID: shop",
        )
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    Ok(ExtraHeaders::parse(&text).map_err(wrong)?)
}

/// The same for a server that may have a token file, too: it must not get two tokens.
pub(super) fn read_beside_token(
    file: Option<&Path>,
    option: &str,
    has_token: bool,
) -> anyhow::Result<ExtraHeaders> {
    let headers = read_headers(file, option)?;
    if has_token && headers.has_authorization() {
        let message =
            format!("{option}: there is a token file, too, and both are for Authorization");
        return Err(HintedError::usage(message, "give the token in one of the files").into());
    }
    Ok(headers)
}
