//! The target text of `/proc/PID/fd/N`.

use bstr::ByteSlice as _;

use crate::ascii::decimal;

/// A parsed descriptor link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link<'a> {
    /// A path. `marked` if it ends in the kernel's deletion mark, which a name can end in, too.
    Path {
        /// The text without the mark.
        path: &'a [u8],
        /// Whether the mark was there.
        marked: bool,
    },
    /// A socket.
    Socket(u64),
    /// An anonymous pipe.
    Pipe(u64),
    /// An anonymous inode by its raw name, brackets kept.
    Anonymous(&'a [u8]),
    /// Any other `name:[inode]`, such as a namespace.
    Numbered {
        /// Text before the colon.
        name: &'a [u8],
        /// The inode.
        ino: u64,
    },
    /// None of the above.
    Other(&'a [u8]),
}

const MARK: &[u8] = b" (deleted)";

impl<'a> Link<'a> {
    /// Reads a link's text.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Self {
        if text.first() == Some(&b'/') {
            return match text.strip_suffix(MARK) {
                Some(path) => Self::Path { path, marked: true },
                None => Self::Path {
                    path: text,
                    marked: false,
                },
            };
        }
        if let Some(name) = text.strip_prefix(b"anon_inode:") {
            return Self::Anonymous(name);
        }
        match numbered(text) {
            Some((b"socket", ino)) => Self::Socket(ino),
            Some((b"pipe", ino)) => Self::Pipe(ino),
            Some((name, ino)) => Self::Numbered { name, ino },
            None => Self::Other(text),
        }
    }
}

impl Link<'_> {
    /// The inode of a socket.
    #[must_use]
    pub fn socket(self) -> Option<u64> {
        match self {
            Self::Socket(ino) => Some(ino),
            _ => None,
        }
    }
}

fn numbered(text: &[u8]) -> Option<(&[u8], u64)> {
    let (name, rest) = text.split_once_str(b":[")?;
    Some((name, decimal(rest.strip_suffix(b"]")?)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Link;

    #[test]
    fn links_of_a_real_kernel() {
        assert_eq!(Link::parse(b"socket:[4242]"), Link::Socket(4242));
        assert_eq!(Link::parse(b"pipe:[4251]"), Link::Pipe(4251));
        assert_eq!(
            Link::parse(b"anon_inode:[eventfd]"),
            Link::Anonymous(b"[eventfd]")
        );
        assert_eq!(
            Link::parse(b"anon_inode:inotify"),
            Link::Anonymous(b"inotify")
        );
        assert_eq!(
            Link::parse(b"net:[4026531833]"),
            Link::Numbered {
                name: b"net",
                ino: 4_026_531_833
            }
        );
        assert_eq!(
            Link::parse(b"/tmp/x (deleted)"),
            Link::Path {
                path: b"/tmp/x",
                marked: true
            }
        );
        assert_eq!(
            Link::parse(b"/tmp/x"),
            Link::Path {
                path: b"/tmp/x",
                marked: false
            }
        );
        assert_eq!(Link::parse(b"socket:[x]"), Link::Other(b"socket:[x]"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = Link::parse(&bytes);
        }
    }
}
