//! The program that the kernel runs for every descriptor: it writes a record and nothing else.

use super::assembler::Reg::{R0, R1, R2, R3, R6, R7, R8, R9, R10};
use super::assembler::{Assembler, Do, Helper, If, Label, Reg};
use super::layout::{Field, Layout};
use super::record::{HEAD, MARK_MORE, MARK_UNSURE, PATH, at};

/// The program's context, eight bytes each.
const META: i16 = 0;
const TASK: i16 = 8;
const NUMBER: i16 = 16;
const FILE: i16 = 24;
/// Position of the record on the stack, and eight bytes to read into.
const RECORD: i16 = -8 - HEAD - PATH;
const SCRATCH: i16 = -8;

const O_CLOEXEC: i32 = 0o2_000_000;
pub(super) const SOCKFS: u32 = 0x534f_434b;
pub(super) const PIPEFS: u32 = 0x5049_5045;

/// The program's bytes for a kernel of this layout.
pub(super) fn assemble(layout: &Layout) -> Option<Vec<u8>> {
    let mut writer = Writer {
        code: Assembler::default(),
        layout,
    };
    let end = writer.code.label();
    writer.begin(end);
    writer.process();
    writer.slot();
    writer.file();
    writer.inode();
    writer.path(end);
    writer.hand_over();
    writer.code.place(end);
    writer.code.leave();
    writer.code.finish()
}

/// `R6` is the context, `R7` the file throughout, `R8` the task until the inode is read.
struct Writer<'a> {
    code: Assembler,
    layout: &'a Layout,
}

impl Writer<'_> {
    /// Exits at the end of the walk, and for threads with their own table: `/proc/PID` shows the
    /// first thread's.
    fn begin(&mut self, end: Label) {
        let task = &self.layout.task;
        let code = &mut self.code;
        code.register(Do::Move, R6, R1);
        code.load(8, R7, R6, FILE);
        code.jump(If::Equal, R7, 0, end);
        code.load(8, R8, R6, TASK);
        code.jump(If::Equal, R8, 0, end);
        code.load(4, R1, R8, task.pid.offset);
        code.load(4, R2, R8, task.tgid.offset);
        code.jump_by(If::NotEqual, (R1, R2), end);
        for offset in (RECORD..SCRATCH).step_by(8) {
            code.store_number(R10, offset, 0);
        }
        code.load(4, R1, R6, NUMBER);
        self.keep(4, at::FD, R1);
    }

    /// The holder: the pid in the reader's namespace.
    fn process(&mut self) {
        let (task, pid) = (&self.layout.task, &self.layout.pid);
        self.code.load(8, R1, R8, task.start_boottime.offset);
        self.keep(8, at::STARTED, R1);
        self.code.call(Helper::CurrentTask);
        self.code.load(8, R1, R0, task.thread_pid.offset);
        self.code.load(4, R9, R1, pid.level.offset);
        self.code.number(Do::Left, R9, pid.step);
        self.read((R8, i32::from(task.thread_pid.offset)), 8);
        self.code.register(Do::Add, R1, R9);
        self.read((R1, i32::from(pid.first)), 4);
        self.keep(4, at::PID, R1);
    }

    /// The slot in the table: whether the file is still there, and whether it closes at exec.
    fn slot(&mut self) {
        let table = &self.layout.table;
        let [unsure, done, kept] = [(); 3].map(|()| self.code.label());
        self.code.load(8, R1, R8, self.layout.task.files.offset);
        self.code.load(8, R9, R1, self.layout.files_fdt.offset);
        self.code.load(4, R1, R9, table.max_fds.offset);
        self.code.load(4, R2, R6, NUMBER);
        self.code.jump_by(If::NotBelow, (R2, R1), unsure);
        self.read((R9, i32::from(table.close_on_exec.offset)), 8);
        self.code.load(4, R2, R6, NUMBER);
        self.code.number(Do::Right, R2, 6);
        self.code.number(Do::Left, R2, 3);
        self.code.register(Do::Add, R1, R2);
        self.read((R1, 0), 8);
        self.code.load(4, R2, R6, NUMBER);
        self.code.number(Do::And, R2, 63);
        self.code.register(Do::Right, R1, R2);
        self.code.number(Do::And, R1, 1);
        self.code.jump(If::Equal, R1, 0, kept);
        self.code.number(Do::Move, R1, O_CLOEXEC);
        self.keep(4, at::FLAGS, R1);
        self.code.place(kept);
        self.read((R9, i32::from(table.fd.offset)), 8);
        self.code.load(4, R2, R6, NUMBER);
        self.code.number(Do::Left, R2, 3);
        self.code.register(Do::Add, R1, R2);
        self.read((R1, 0), 8);
        self.code.jump_by(If::Equal, (R1, R7), done);
        self.code.place(unsure);
        self.mark(MARK_UNSURE);
        self.code.place(done);
    }

    /// The open flags, and whether its fdinfo has additional lines.
    fn file(&mut self) {
        let file = &self.layout.file;
        self.code.load(4, R1, R7, file.flags.offset);
        self.code.number(Do::And, R1, !O_CLOEXEC);
        self.code.load(4, R2, R10, RECORD + at::FLAGS);
        self.code.register(Do::Or, R1, R2);
        self.keep(4, at::FLAGS, R1);
        self.copy(R7, file.pos, at::POS);
        self.code.load(8, R3, R7, file.path_mnt.offset);
        self.read((R3, self.layout.mount_number), 4);
        self.keep(4, at::MNT, R1);
        self.code.load(8, R1, R7, file.operations.offset);
        self.code.load(8, R1, R1, self.layout.show_fdinfo.offset);
        self.mark_unless_null(R1);
    }

    /// The file type. Leaves the file system's magic in `R9`.
    fn inode(&mut self) {
        let inode = &self.layout.inode;
        self.code.load(8, R9, R7, self.layout.file.inode.offset);
        self.copy(R9, inode.ino, at::INO);
        self.copy(R9, inode.mode, at::MODE);
        self.copy(R9, inode.links, at::LINKS);
        self.copy(R9, inode.size, at::SIZE);
        self.copy(R9, inode.rdev, at::RDEV);
        self.locks();
        self.code.load(8, R1, R9, inode.superblock.offset);
        self.code.load(8, R9, R1, self.layout.magic.offset);
        self.keep(8, at::MAGIC, R9);
    }

    /// Whether any process holds a lock on it now. An earlier lock proves nothing: all anonymous
    /// inodes are the same, and one lock on an eventfd would make every one of them look locked
    /// until the next boot. Clobbers `R8`.
    fn locks(&mut self) {
        let inode = &self.layout.inode;
        let none = self.code.label();
        self.code.load(8, R8, R9, inode.locks.offset);
        self.code.jump(If::Equal, R8, 0, none);
        for list in inode.lock_lists {
            let empty = self.code.label();
            self.read((R8, i32::from(list.offset)), 8);
            self.code.register(Do::Move, R2, R8);
            self.code.number(Do::Add, R2, i32::from(list.offset));
            self.code.jump_by(If::Equal, (R1, R2), empty);
            self.mark(MARK_MORE);
            self.code.place(empty);
        }
        self.code.place(none);
    }

    /// The path, if needed. Leaves its length in `R9`.
    fn path(&mut self, end: Label) {
        let [none, done] = [(); 2].map(|()| self.code.label());
        for magic in [SOCKFS, PIPEFS] {
            self.code.jump(If::Equal, R9, magic.cast_signed(), none);
        }
        self.code.load(2, R1, R10, RECORD + at::MARKS);
        self.code.jump(If::NotEqual, R1, 0, none);
        self.code.register(Do::Move, R1, R7);
        self.code
            .number(Do::Add, R1, i32::from(self.layout.file.path.offset));
        self.code.register(Do::Move, R2, R10);
        self.code.number(Do::Add, R2, i32::from(RECORD + HEAD));
        self.code.number(Do::Move, R3, i32::from(PATH));
        self.code.call(Helper::DPath);
        self.code.register(Do::Move, R9, R0);
        let long = self.code.label();
        self.code.jump(If::Negative, R9, 0, long);
        self.code.jump(If::Above, R9, i32::from(PATH), end);
        self.code.go(done);
        self.code.place(long);
        self.mark(MARK_UNSURE);
        self.code.place(none);
        self.code.number(Do::Move, R9, 0);
        self.code.place(done);
    }

    /// Passes the record to the reader.
    fn hand_over(&mut self) {
        let code = &mut self.code;
        code.number(Do::Add, R9, i32::from(HEAD));
        code.store(4, R10, RECORD + at::LENGTH, R9);
        code.load(8, R1, R6, META);
        code.load(8, R1, R1, 0);
        code.register(Do::Move, R2, R10);
        code.number(Do::Add, R2, i32::from(RECORD));
        code.register(Do::Move, R3, R9);
        code.call(Helper::SeqWrite);
    }

    fn keep(&mut self, size: u32, at: i16, from: Reg) {
        self.code.store(size, R10, RECORD + at, from);
    }

    fn copy(&mut self, from: Reg, field: Field, to: i16) {
        self.code.load(field.size, R1, from, field.offset);
        self.keep(field.size, to, R1);
    }

    /// Reads where the verifier cannot check. The value is in `R1`; if it cannot be read it is 0,
    /// and marked.
    fn read(&mut self, (base, offset): (Reg, i32), size: i32) {
        let fine = self.code.label();
        let code = &mut self.code;
        code.register(Do::Move, R3, base);
        code.number(Do::Add, R3, offset);
        code.store_number(R10, SCRATCH, 0);
        code.register(Do::Move, R1, R10);
        code.number(Do::Add, R1, i32::from(SCRATCH));
        code.number(Do::Move, R2, size);
        code.call(Helper::ProbeReadKernel);
        code.jump(If::Equal, R0, 0, fine);
        self.mark(MARK_UNSURE);
        self.code.place(fine);
        self.code.load(size.cast_unsigned(), R1, R10, SCRATCH);
    }

    fn mark(&mut self, mark: i32) {
        self.code.load(2, R1, R10, RECORD + at::MARKS);
        self.code.number(Do::Or, R1, mark);
        self.keep(2, at::MARKS, R1);
    }

    fn mark_unless_null(&mut self, pointer: Reg) {
        let null = self.code.label();
        self.code.jump(If::Equal, pointer, 0, null);
        self.mark(MARK_MORE);
        self.code.place(null);
    }
}
