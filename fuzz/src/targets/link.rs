//! Targets of descriptor links: the text can be put together again from its parts.

use fdguard_proc::link::{Link, file_name, is_nameless, without_mark};

pub(crate) fn run(bytes: &[u8]) {
    assert!(bytes.starts_with(without_mark(bytes)));
    assert!(!file_name(bytes).contains(&b'/'));
    assert!(!is_nameless(bytes) || !bytes.starts_with(b"/"));
    match Link::parse(bytes) {
        Link::Path { path, marked } => {
            let mark: &[u8] = if marked { b" (deleted)" } else { b"" };
            assert_eq!([path, mark].concat(), bytes);
        }
        Link::Anonymous(name) => assert_eq!([b"anon_inode:", name].concat(), bytes),
        Link::Other(text) => assert_eq!(text, bytes),
        Link::Numbered { name, .. } => assert!(bytes.starts_with(name)),
        Link::Socket(_) => assert!(bytes.starts_with(b"socket:[")),
        Link::Pipe(_) => assert!(bytes.starts_with(b"pipe:[")),
    }
}
