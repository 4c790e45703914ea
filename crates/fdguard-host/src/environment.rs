//! Environment variables that programs inherit from the host.

use std::ffi::OsString;

use fdguard_process::environment::for_program;

/// The variable that the host's token may be in.
pub const TOKEN: &str = "FDGUARD_HOST_TOKEN";
/// The number of a descriptor that the token can be read from, once.
pub const TOKEN_FD: &str = "FDGUARD_HOST_TOKEN_FD";

/// The initial variables of sessions, without those meant only for the host: with the token, a
/// session could control everything.
pub(crate) fn inherited() -> Vec<(OsString, OsString)> {
    handed_on(std::env::vars_os())
}

/// Whether this can be a variable: a name must not contain `=`, and neither may contain a NUL byte.
pub(crate) fn is_fit(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

fn handed_on(ours: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    for_program(ours.filter(|(name, _)| name != TOKEN && name != TOKEN_FD))
}

#[cfg(test)]
mod tests {
    use super::handed_on;

    #[test]
    fn what_is_meant_for_the_host_is_not_handed_on() {
        let names = [
            "PATH",
            "FDGUARD_HOST_TOKEN",
            "FDGUARD_HOST_TOKEN_FD",
            "NOTIFY_SOCKET",
            "HOME",
        ];
        let variables = names.map(|name| (name.into(), "x".into()));
        let left = handed_on(variables.into_iter());
        let left: Vec<_> = left.iter().map(|(name, _)| name).collect();
        assert_eq!(left, ["PATH", "HOME"]);
    }
}
