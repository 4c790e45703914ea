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

/// What the kernel appends to the path of a file without a name. A name can end in it, too.
pub const DELETION_MARK: &[u8] = b" (deleted)";

impl<'a> Link<'a> {
    /// Reads a link's text.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Self {
        if text.first() == Some(&b'/') {
            return match text.strip_suffix(DELETION_MARK) {
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

/// A path of the kernel's without its deletion mark.
#[must_use]
pub fn without_mark(path: &[u8]) -> &[u8] {
    path.strip_suffix(DELETION_MARK).unwrap_or(path)
}

/// The file name in a path of the kernel's: of an executable, or of what is mapped.
#[must_use]
pub fn file_name(path: &[u8]) -> &[u8] {
    let path = without_mark(path);
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// Whether what a descriptor leads to has no name: `pipe:[7]`, `anon_inode:[eventfd]`, and a
/// pattern of such links, `socket:[*]`.
#[must_use]
pub fn is_nameless(target: &[u8]) -> bool {
    let kinds: [&[u8]; 3] = [b"pipe:", b"anon_inode:", b"socket:"];
    kinds.iter().any(|kind| target.starts_with(kind))
}

fn numbered(text: &[u8]) -> Option<(&[u8], u64)> {
    let (name, rest) = text.split_once_str(b":[")?;
    Some((name, decimal(rest.strip_suffix(b"]")?)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Link, file_name, is_nameless, without_mark};

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

    #[test]
    fn a_mark_is_no_part_of_a_name() {
        assert_eq!(without_mark(b"/a/b (deleted)"), b"/a/b");
        assert_eq!(without_mark(b"/a/b (deleted) "), b"/a/b (deleted) ");
        assert_eq!(file_name(b"/usr/bin/node (deleted)"), b"node");
        assert_eq!(file_name(b"/"), b"");
        assert_eq!(file_name(b"[vdso]"), b"[vdso]");
    }

    #[test]
    fn what_has_no_name_is_known_by_its_kind() {
        for target in [
            "pipe:[7]",
            "pipe:[*]",
            "socket:[12] 2 1 10",
            "anon_inode:[eventfd]",
        ] {
            assert!(is_nameless(target.as_bytes()), "{target}");
        }
        for target in ["/srv/pipe:[7]", "net:[1]", "inotify", ""] {
            assert!(!is_nameless(target.as_bytes()), "{target}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = Link::parse(&bytes);
        }
    }
}
