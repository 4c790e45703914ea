//! One descriptor from one file set: pure, and the same for every dialect of lsof.

use bstr::ByteSlice as _;
use fdguard_core::detail::{
    FileDetail, FileLock, Memfd, OtherDetail, PipeDetail, PipeEnd, PtyDetail,
};
use fdguard_core::{Class, Detail, Fd, FdEntry, FileId, Mode, Text};
use fdguard_proc::link::DELETION_MARK;

use super::{anonymous, socket};
use crate::parse::lsof::LsofSet;

/// What applies to all descriptors of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setting {
    /// Whether the flags show close-on-exec.
    pub(super) tells_cloexec: bool,
    /// Whether the process is in another network namespace than lsof, which lists only its own
    /// sockets.
    pub(super) foreign_network: bool,
}

/// The thing behind the number, from a file set.
pub(super) struct Thing {
    pub(super) class: Class,
    pub(super) target: Text,
    pub(super) detail: Detail,
}

impl Thing {
    /// A thing of which only the name is known.
    pub(super) fn named(class: Class, target: impl Into<Text>) -> Self {
        Self {
            class,
            target: target.into(),
            detail: Detail::Fields(OtherDetail::default()),
        }
    }
}

/// The descriptor of one file set.
pub(super) fn entry(fd: Fd, set: &LsofSet<'_>, setting: Setting) -> FdEntry {
    let name = set.text(b'n').unwrap_or_default();
    let kind = set.get(b't').unwrap_or(b"unknown");
    let mut deleted = false;
    let is_socket = socket::is_socket(kind);
    let id = identity(set, is_socket);
    let thing = if is_socket {
        socket::describe(kind, &name, set, setting)
    } else {
        // The BSDs put the V of vnode before the types of files.
        match kind.strip_prefix(b"V").unwrap_or(kind) {
            b"a_inode" => anonymous::describe(&name),
            b"FIFO" | b"PIPE" => pipe(&name, set, id),
            b"REG" => {
                let (path, gone) = undeleted(&name, set.number(b'k'));
                deleted = gone;
                regular(path, gone, &name, set, id)
            }
            b"DIR" => file(Class::Directory, &name, set),
            b"CHR" => device(&name, set),
            b"BLK" => file(Class::Blockdev, &name, set),
            _ => Thing::named(Class::Other(kind.to_str_lossy().into()), &*name),
        }
    };
    FdEntry {
        fd,
        deleted: deleted && thing.class != Class::Memfd,
        class: thing.class,
        target: thing.target,
        mode: mode(set),
        cloexec: setting.tells_cloexec.then(|| set.has_flag(b"CX")),
        detail: thing.detail,
        id,
        shared_with: Vec::new(),
        shared_more: 0,
        open_file: None,
        flags: None,
    }
}

fn mode(set: &LsofSet<'_>) -> Option<Mode> {
    if set.has_flag(b"PATH") {
        return Some(Mode::Path);
    }
    match set.get(b'a')? {
        b"r" => Some(Mode::Read),
        b"w" => Some(Mode::Write),
        b"u" => Some(Mode::ReadWrite),
        _ => None,
    }
}

/// Device and inode. Sockets have an inode only on Linux, sometimes in the field for the device;
/// elsewhere they have the address of their kernel structure. Either distinguishes them.
fn identity(set: &LsofSet<'_>, is_socket: bool) -> Option<FileId> {
    let ino = set.number(b'i').or_else(|| set.number(b'd'))?;
    let device = set.number(b'D').filter(|_| !is_socket);
    Some(FileId {
        mnt: device.unwrap_or(0),
        ino,
    })
}

/// The name without the kernel's mark, and whether the file has lost its last name. The link count
/// decides: a name may end in the mark itself.
fn undeleted(name: &[u8], links: Option<u64>) -> (&[u8], bool) {
    let bare = name.strip_suffix(DELETION_MARK);
    match links {
        Some(0) => (bare.unwrap_or(name), true),
        Some(_) => (name, false),
        None => (bare.unwrap_or(name), bare.is_some()),
    }
}

fn regular(
    path: &[u8],
    deleted: bool,
    name: &[u8],
    set: &LsofSet<'_>,
    id: Option<FileId>,
) -> Thing {
    let marked = name.ends_with(DELETION_MARK);
    if let (true, true, Some(memory)) = (marked, deleted, path.strip_prefix(b"/memfd:")) {
        return Thing {
            class: Class::Memfd,
            target: Text::from(memory),
            detail: Detail::Memfd(Memfd {
                name: Text::from(memory),
                size: set.number(b's'),
            }),
        };
    }
    if name == b"/secretmem (deleted)" {
        return Thing::named(Class::Other("secretmem".into()), "secretmem");
    }
    // Namespaces and similar: files of a kernel-internal file system, without a path.
    if !name.is_empty() && !name.starts_with(b"/") {
        let raw = name.to_str_lossy();
        let target = id.map_or_else(|| raw.to_string(), |id| format!("{raw}:[{}]", id.ino));
        return Thing::named(Class::Other(raw.into()), target);
    }
    let class = if deleted {
        Class::Deleted
    } else {
        Class::Regular
    };
    file(class, path, set)
}

fn file(class: Class, path: &[u8], set: &LsofSet<'_>) -> Thing {
    let is_regular = matches!(class, Class::Regular | Class::Deleted);
    let links = set.number(b'k').and_then(|links| u32::try_from(links).ok());
    Thing {
        class,
        target: Text::from(path),
        detail: Detail::File(Box::new(FileDetail {
            path: Text::from(path),
            // lsof prints the size or the position, never both.
            pos: None,
            size: set.number(b's').filter(|_| is_regular),
            links,
            locks: whole_lock(set).into_iter().collect(),
            ..FileDetail::default()
        })),
    }
}

/// A lock on the whole file. The range of a byte-range lock is unknown: see [`has_partial_lock`].
fn whole_lock(set: &LsofSet<'_>) -> Option<FileLock> {
    let access = match set.get(b'l')? {
        b"R" => "READ",
        b"W" => "WRITE",
        _ => return None,
    };
    Some(FileLock {
        // POSIX, flock or lease: lsof uses one letter for all of them.
        kind: "UNKNOWN".to_owned(),
        access: access.to_owned(),
        start: 0,
        end: None,
    })
}

/// Whether there is a lock whose range or kind is unknown.
pub(super) fn has_partial_lock(set: &LsofSet<'_>) -> bool {
    set.get(b'l')
        .is_some_and(|letter| !matches!(letter, b"" | b" " | b"R" | b"W"))
}

fn device(name: &[u8], set: &LsofSet<'_>) -> Thing {
    // The name decides: each system encodes device numbers differently.
    match name {
        b"/dev/ptmx" | b"/dev/pts/ptmx" => Thing {
            class: Class::PtyMaster,
            target: Text::from(name),
            detail: Detail::Pty(Box::new(PtyDetail {
                index: None,
                path: Text::from(name),
                ..PtyDetail::default()
            })),
        },
        terminal
            if terminal.starts_with(b"/dev/tty")
                || terminal.starts_with(b"/dev/pts/")
                || terminal == b"/dev/console" =>
        {
            file(Class::Tty, name, set)
        }
        _ => file(Class::Chardev, name, set),
    }
}

fn pipe(name: &[u8], set: &LsofSet<'_>, id: Option<FileId>) -> Thing {
    let path = name.starts_with(b"/").then(|| Text::from(name));
    let target = match (&path, id) {
        (Some(path), _) => path.clone(),
        (None, Some(id)) => Text::from(format!("pipe:[{}]", id.ino)),
        (None, None) => Text::from(name),
    };
    let end = match mode(set) {
        Some(Mode::Read) => Some(PipeEnd::Read),
        Some(Mode::Write) => Some(PipeEnd::Write),
        // macOS reports a pipe as open for both: that is its type, not its end.
        Some(Mode::ReadWrite) if path.is_some() => Some(PipeEnd::Both),
        _ => None,
    };
    Thing {
        class: if path.is_some() {
            Class::Fifo
        } else {
            Class::Pipe
        },
        target,
        detail: Detail::Pipe(Box::new(PipeDetail {
            end,
            peer: None,
            peer_more: 0,
            path,
        })),
    }
}
