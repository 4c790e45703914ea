//! The address of a database file, as SQLite reads it.

use std::path::Path;

/// The URI of a file with these parameters (`mode=ro&immutable=1`). Every byte that means something
/// in a URI is escaped, so that a path with `%`, `?`, `#` or bytes that are not UTF-8 stays one.
#[must_use]
pub fn sqlite_uri(path: &Path, parameters: &str) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    // An empty host: without it, a path that begins with two slashes would be a host.
    let host = if bytes.starts_with(b"/") { "//" } else { "" };
    let mut uri = format!("file:{host}");
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte));
            }
            other => uri.push_str(&format!("%{other:02x}")),
        }
    }
    uri + "?" + parameters
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use super::sqlite_uri;

    #[test]
    fn what_means_something_in_an_address_is_escaped() {
        let uri = |path: &[u8]| sqlite_uri(Path::new(OsStr::from_bytes(path)), "immutable=1");
        assert_eq!(uri(b"/srv/a.db"), "file:///srv/a.db?immutable=1");
        assert_eq!(
            uri(b"/srv/50% ?#.db"),
            "file:///srv/50%25%20%3f%23.db?immutable=1"
        );
        assert_eq!(uri(b"/\xff"), "file:///%ff?immutable=1");
        assert_eq!(uri(b"//srv/a.db"), "file:////srv/a.db?immutable=1");
        assert_eq!(uri(b"a:b.db"), "file:a%3ab.db?immutable=1");
    }
}
