//! Paths: each component on its own.

use fdguard_proc::link::{DELETION_MARK, Link};

use super::{Redactor, words};
use crate::collapse;

/// Directories below `/dev` with user-chosen names.
const NAMED_DEVICES: &[&[u8]] = &[b"shm", b"mqueue", b"mapper", b"disk", b"hugepages"];

impl Redactor {
    /// A path, or any other name with slashes.
    pub fn path(&mut self, path: &[u8]) -> Vec<u8> {
        if let Some(path) = path.strip_suffix(DELETION_MARK) {
            return [&self.path(path), DELETION_MARK].concat();
        }
        if is_made_by_kernel(path) {
            return path.to_vec();
        }
        let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let stems: Vec<&[u8]> = parts.iter().map(|part| words::split_kind(part).0).collect();
        let shapes = collapsed(&stems);
        let mut out: Vec<Vec<u8>> = Vec::with_capacity(parts.len());
        for (index, part) in parts.iter().enumerate() {
            let stays = words::is_place(part)
                || words::is_place(stems[index])
                || words::is_library(part)
                || self.issued.contains(*part)
                || is_device(&parts[..=index])
                || (parts.get(1) == Some(&&b"proc"[..]) && part.iter().all(u8::is_ascii_digit));
            out.push(if stays {
                part.to_vec()
            } else {
                self.component(
                    part,
                    stems[index],
                    shapes.get(index).map_or(b"*", |shape| shape),
                )
            });
        }
        out.join(&b'/')
    }

    /// The path of a program: its own name stays.
    pub fn program(&mut self, path: &[u8]) -> Vec<u8> {
        if let Some(path) = path.strip_suffix(DELETION_MARK) {
            return [&self.program(path), DELETION_MARK].concat();
        }
        let at = path
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |at| at + 1);
        let (dir, name) = path.split_at(at);
        let name = if words::is_program_name(name) {
            name.to_vec()
        } else {
            self.path(name)
        };
        [self.path(dir), name].concat()
    }

    fn component(&mut self, part: &[u8], stem: &[u8], shape: &[u8]) -> Vec<u8> {
        let kind = &part[stem.len()..];
        let token = if shape == stem {
            self.word(stem)
        } else {
            self.numbered(shape, stem)
        };
        let whole = [token.as_bytes(), kind].concat();
        self.issued.insert(whole.clone());
        whole
    }
}

/// The components with numbers and random parts collapsed, also those that look like words: it must
/// remain visible that two temporary names belong together when their letters are gone.
fn collapsed(stems: &[&[u8]]) -> Vec<Vec<u8>> {
    let joined = stems.join(&b'/');
    let joined = collapse::with_words(&joined).unwrap_or(joined);
    let collapsed = collapse::collapse(&joined);
    collapsed
        .split(|byte| *byte == b'/')
        .map(<[u8]>::to_vec)
        .collect()
}

/// `pipe:[123]`, `anon_inode:[eventfd]`: it contains no private name.
fn is_made_by_kernel(name: &[u8]) -> bool {
    const KINDS: &[&[u8]] = &[
        b"net", b"mnt", b"uts", b"ipc", b"pid", b"user", b"cgroup", b"time",
    ];
    match Link::parse(name) {
        Link::Anonymous(name) => !name.contains(&b'/'),
        Link::Socket(_) | Link::Pipe(_) => true,
        Link::Numbered { name, .. } => KINDS.contains(&name),
        Link::Path { .. } | Link::Other(_) => false,
    }
}

/// Whether a path leads to a device that the kernel named.
fn is_device(parts: &[&[u8]]) -> bool {
    match parts {
        [b"", b"dev", first, ..] => !NAMED_DEVICES.contains(first),
        _ => false,
    }
}
