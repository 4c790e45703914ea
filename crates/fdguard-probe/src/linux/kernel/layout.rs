//! Offsets of the fields that the program reads, from the running kernel's type information: pure.

use fdguard_kernel::btf::{Btf, BtfMember, Kind};

/// A field of a kernel structure, at an offset that fits into an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) offset: i16,
    pub(super) size: u32,
}

/// Every field that the program reads.
#[derive(Debug)]
pub(super) struct Layout {
    /// The id of the function that the program implements.
    pub(super) target: u32,
    pub(super) task: Task,
    pub(super) pid: PidNumbers,
    pub(super) files_fdt: Field,
    pub(super) table: Table,
    pub(super) file: File,
    pub(super) show_fdinfo: Field,
    /// Offset from the mount that a path refers to, to the mount id that fdinfo shows.
    pub(super) mount_number: i32,
    pub(super) inode: Inode,
    pub(super) magic: Field,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) pid: Field,
    pub(super) tgid: Field,
    pub(super) start_boottime: Field,
    pub(super) thread_pid: Field,
    pub(super) files: Field,
}

/// `struct pid`: a number for each namespace, the outermost first.
#[derive(Debug)]
pub(super) struct PidNumbers {
    pub(super) level: Field,
    /// Where the first number is.
    pub(super) first: i16,
    /// The shift for the distance from one to the next, which is a power of two.
    pub(super) step: i32,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) max_fds: Field,
    pub(super) fd: Field,
    pub(super) close_on_exec: Field,
}

#[derive(Debug)]
pub(super) struct File {
    pub(super) flags: Field,
    pub(super) pos: Field,
    pub(super) inode: Field,
    pub(super) operations: Field,
    pub(super) path: Field,
    pub(super) path_mnt: Field,
}

#[derive(Debug)]
pub(super) struct Inode {
    pub(super) ino: Field,
    pub(super) mode: Field,
    pub(super) links: Field,
    pub(super) size: Field,
    pub(super) rdev: Field,
    pub(super) superblock: Field,
    pub(super) locks: Field,
    /// The lists of locks in what `locks` refers to.
    pub(super) lock_lists: [Field; 3],
}

/// Every type that the layout is made from, to be found in one pass.
pub(super) const TYPES: &[(Kind, &str)] = &[
    (Kind::Function, "bpf_iter_task_file"),
    (Kind::Struct, "task_struct"),
    (Kind::Struct, "files_struct"),
    (Kind::Struct, "fdtable"),
    (Kind::Struct, "file_operations"),
    (Kind::Struct, "super_block"),
    (Kind::Struct, "pid"),
    (Kind::Struct, "upid"),
    (Kind::Struct, "file"),
    (Kind::Struct, "path"),
    (Kind::Struct, "inode"),
    (Kind::Struct, "file_lock_context"),
    (Kind::Struct, "mount"),
];

impl Layout {
    /// `None` if something is missing or does not have the width that the record expects.
    pub(super) fn from_btf(btf: &Btf<'_>) -> Option<Self> {
        let [pid, tgid, start_boottime, thread_pid, files] = fields(
            btf,
            "task_struct",
            [
                ("pid", 4),
                ("tgid", 4),
                ("start_boottime", 8),
                ("thread_pid", 8),
                ("files", 8),
            ],
        )?;
        let [files_fdt] = fields(btf, "files_struct", [("fdt", 8)])?;
        let [max_fds, fd, close_on_exec] = fields(
            btf,
            "fdtable",
            [("max_fds", 4), ("fd", 8), ("close_on_exec", 8)],
        )?;
        let [show_fdinfo] = fields(btf, "file_operations", [("show_fdinfo", 8)])?;
        let [magic] = fields(btf, "super_block", [("s_magic", 8)])?;
        Some(Self {
            target: *btf.named(Kind::Function, "bpf_iter_task_file").first()?,
            task: Task {
                pid,
                tgid,
                start_boottime,
                thread_pid,
                files,
            },
            pid: numbers(btf)?,
            files_fdt,
            table: Table {
                max_fds,
                fd,
                close_on_exec,
            },
            file: file(btf)?,
            show_fdinfo,
            mount_number: mount_number(btf)?,
            inode: inode(btf)?,
            magic,
        })
    }
}

fn numbers(btf: &Btf<'_>) -> Option<PidNumbers> {
    let (level, list) = btf.named(Kind::Struct, "pid").into_iter().find_map(|id| {
        let level = field(btf.member(id, "level")?)?;
        Some((level, btf.member(id, "numbers")?.offset))
    })?;
    let (nr, size) = btf
        .named(Kind::Struct, "upid")
        .into_iter()
        .find_map(|id| Some((btf.member(id, "nr")?, btf.size(id)?)))?;
    let whole = level.size == 4 && nr.size == 4 && size.is_power_of_two();
    whole.then_some(PidNumbers {
        level,
        first: i16::try_from(list.checked_add(nr.offset)?).ok()?,
        step: i32::try_from(size.trailing_zeros()).ok()?,
    })
}

fn file(btf: &Btf<'_>) -> Option<File> {
    let [flags, pos, inode, operations] = fields(
        btf,
        "file",
        [("f_flags", 4), ("f_pos", 8), ("f_inode", 8), ("f_op", 8)],
    )?;
    let path = member(btf, "file", "f_path")?;
    let [mnt] = fields(btf, "path", [("mnt", 8)])?;
    let path = field(path)?;
    Some(File {
        flags,
        pos,
        inode,
        operations,
        path,
        path_mnt: Field {
            offset: path.offset.checked_add(mnt.offset)?,
            ..mnt
        },
    })
}

fn inode(btf: &Btf<'_>) -> Option<Inode> {
    let [ino, mode, links, size, rdev, superblock, locks] = fields(
        btf,
        "inode",
        [
            ("i_ino", 8),
            ("i_mode", 2),
            ("i_nlink", 4),
            ("i_size", 8),
            ("i_rdev", 4),
            ("i_sb", 8),
            ("i_flctx", 8),
        ],
    )?;
    let lock_lists = fields(
        btf,
        "file_lock_context",
        [("flc_flock", 16), ("flc_posix", 16), ("flc_lease", 16)],
    )?;
    Some(Inode {
        lock_lists,
        ino,
        mode,
        links,
        size,
        rdev,
        superblock,
        locks,
    })
}

fn mount_number(btf: &Btf<'_>) -> Option<i32> {
    let (inner, number) = btf
        .named(Kind::Struct, "mount")
        .into_iter()
        .find_map(|id| Some((btf.member(id, "mnt")?, btf.member(id, "mnt_id")?)))?;
    let signed = |member: BtfMember| i32::try_from(member.offset).ok();
    (number.size == 4).then_some(signed(number)?.checked_sub(signed(inner)?)?)
}

fn fields<const N: usize>(
    btf: &Btf<'_>,
    structure: &str,
    wanted: [(&str, u32); N],
) -> Option<[Field; N]> {
    btf.named(Kind::Struct, structure)
        .into_iter()
        .find_map(|id| {
            let mut found = [Field { offset: 0, size: 0 }; N];
            for (slot, (name, size)) in found.iter_mut().zip(wanted) {
                *slot = field(btf.member(id, name)?).filter(|field| field.size == size)?;
            }
            Some(found)
        })
}

fn member(btf: &Btf<'_>, structure: &str, name: &str) -> Option<BtfMember> {
    btf.named(Kind::Struct, structure)
        .into_iter()
        .find_map(|id| btf.member(id, name))
}

fn field(member: BtfMember) -> Option<Field> {
    Some(Field {
        offset: i16::try_from(member.offset).ok()?,
        size: member.size,
    })
}
