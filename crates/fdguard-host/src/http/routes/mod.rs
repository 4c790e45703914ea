//! One file per group of routes.

pub(super) mod archive;
pub(super) mod calls;
pub(super) mod clients;
pub(super) mod exec;
pub(super) mod health;
pub(super) mod metrics;
mod pieces;
pub(super) mod scopes;
pub(super) mod sessions;

/// Parses any body as each request, for the fuzz target: what is refused is the client's mistake.
#[cfg(feature = "fuzzing")]
pub fn fuzz_body(bytes: &[u8]) {
    fn check<T: serde::de::DeserializeOwned>(bytes: &[u8]) {
        if let Err(problem) = super::body::parse::<T>(bytes) {
            assert!(problem.status().is_client_error(), "{problem:?}");
        }
    }
    check::<archive::NewArchive>(bytes);
    check::<calls::NewCall>(bytes);
    check::<clients::NewClient>(bytes);
    check::<exec::NewExec>(bytes);
    check::<scopes::NewScope>(bytes);
    check::<sessions::NewSession>(bytes);
}
