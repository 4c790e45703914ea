//! Searches for a program as `execvp` does.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// The C library's search path if `PATH` is not set.
const DEFAULT: &[u8] = b"/bin:/usr/bin";

/// The candidate paths of a program in the order in which they are tried. A name with a slash is
/// its own only candidate.
pub(super) fn candidates(program: &OsStr, path: Option<&OsStr>) -> Vec<Vec<u8>> {
    let program = program.as_bytes();
    if program.is_empty() {
        return Vec::new();
    }
    if program.contains(&b'/') {
        return vec![program.to_vec()];
    }
    let path = path.map_or(DEFAULT, OsStr::as_bytes);
    let place = |dir: &[u8]| match dir {
        // An empty part is the current directory.
        [] => program.to_vec(),
        _ => [dir, b"/", program].concat(),
    };
    path.split(|byte| *byte == b':').map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(program: &str, path: Option<&str>) -> Vec<String> {
        let places = candidates(OsStr::new(program), path.map(OsStr::new));
        let text = |place| String::from_utf8(place).unwrap();
        places.into_iter().map(text).collect()
    }

    #[test]
    fn each_dir_of_the_path_is_a_place() {
        assert_eq!(found("ls", Some("/a:/b/c")), ["/a/ls", "/b/c/ls"]);
        assert_eq!(found("ls", None), ["/bin/ls", "/usr/bin/ls"]);
    }

    #[test]
    fn an_empty_part_is_where_we_are() {
        assert_eq!(found("ls", Some(":/b:")), ["ls", "/b/ls", "ls"]);
    }

    #[test]
    fn a_name_with_a_slash_is_not_looked_for() {
        assert_eq!(found("./ls", Some("/a")), ["./ls"]);
        assert_eq!(found("", Some("/a")), Vec::<String>::new());
    }
}
