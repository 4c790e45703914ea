//! Whether a process can call `select()`, judged by the programs and libraries in its memory.
//!
//! Mapped files are read as the process sees them: through its own `exe`, the kernel's list of
//! mapped files if accessible (`map_files`, which also has deleted ones), otherwise by name under
//! its root.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use fdguard_core::{Pid, SelectUse, Text};
use fdguard_proc::link;
use fdguard_proc::maps::{self, MapsEntry};
use fdguard_proc::stat::ProcStat;
use rustc_hash::FxHashSet;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::{Arg, DecInt};

use super::process::gone_or;
use super::{Probe, files};
use crate::Error;
use crate::parse::elf::ElfObject;

mod verdict;

use verdict::{ObjectRead, Unread};

/// The most objects that are read: a desktop program maps two hundred, a server rarely fifty.
const MOST_OBJECTS: usize = 100;
/// The most bytes of tables that are read for one process. The largest measured is Node.js, 7 MB.
const MOST_BYTES: u64 = 128 << 20;
/// The most of the list of mappings that is read: a program with a just-in-time compiler has
/// thousands.
const MOST_MAPS: usize = 8 << 20;

impl Probe {
    /// Whether this process can call `select()`, and through which objects. Missing permission is
    /// not an error but an answer.
    pub fn select_use(&self, pid: Pid) -> Result<SelectUse, Error> {
        let base = self.open_process(pid)?;
        check_alive(pid, base.as_fd())?;
        let maps = match read_maps(base.as_fd()) {
            Ok(maps) => maps,
            Err(error) if files::is_denied(error) => {
                return Ok(SelectUse::unknown(denied("its memory map")));
            }
            Err(error) => return Err(gone_or(pid, "maps", error)),
        };
        let program = files::read_link(&base, c"exe").ok();
        let mut look = Look {
            probe: self,
            base: base.as_fd(),
            budget: MOST_BYTES,
            seen: Vec::new(),
            unread: Vec::new(),
        };
        look.at_program(program.as_deref());
        look.at_libraries(&maps, program.as_deref());
        let (seen, unread) = (look.seen, look.unread);
        // It may have exited meanwhile, and then nothing was found because nothing was left.
        check_alive(pid, base.as_fd())?;
        if files::read_link(&base, c"exe").ok() != program {
            return Ok(SelectUse::unknown("it executed another program meanwhile"));
        }
        Ok(verdict::verdict(&seen, &unread))
    }
}

/// Fails for processes without memory.
fn check_alive(pid: Pid, base: BorrowedFd<'_>) -> Result<(), Error> {
    let bytes = files::read(base, c"stat").map_err(|error| gone_or(pid, "stat", error))?;
    let stat = ProcStat::parse(&bytes).ok_or(Error::Vanished(pid))?;
    if stat.kernel_thread {
        return Err(Error::KernelThread(pid));
    }
    if stat.is_zombie() {
        let ppid = stat.ppid;
        return Err(Error::Zombie { pid, ppid });
    }
    if stat.exiting {
        return Err(Error::Vanished(pid));
    }
    Ok(())
}

/// One check of the objects of one process.
struct Look<'a> {
    probe: &'a Probe,
    base: BorrowedFd<'a>,
    budget: u64,
    seen: Vec<ObjectRead>,
    unread: Vec<Unread>,
}

impl Look<'_> {
    fn at_program(&mut self, path: Option<&[u8]>) {
        let name = path.map_or(Text::from("its program"), file_name);
        let opened = self.open(c"exe", None);
        self.examine(name, opened, true);
    }

    fn at_libraries(&mut self, maps: &[u8], program: Option<&[u8]>) {
        let mut known = FxHashSet::default();
        let code = maps::mappings(maps)
            .filter(|mapping| mapping.executable && Some(mapping.path) != program)
            .filter(|mapping| known.insert((mapping.device, mapping.ino)));
        for (number, mapping) in code.enumerate() {
            if number + 1 >= MOST_OBJECTS {
                let why = format!("more than {MOST_OBJECTS} objects are mapped");
                self.unread.push(Unread::new("the rest", why));
                return;
            }
            let opened = self.open_mapped(mapping);
            self.examine(file_name(mapping.path), opened, false);
        }
    }

    fn examine(&mut self, name: Text, opened: Result<Option<File>, String>, program: bool) {
        let file = match opened {
            Ok(Some(file)) => file,
            Ok(None) => return,
            Err(why) => return self.unread.push(Unread { name, why }),
        };
        match ElfObject::read(file, &mut self.budget) {
            // A cache of compiled code or a font: code in it was not linked.
            Ok(None) => {}
            Ok(Some(object)) => self.seen.push(ObjectRead {
                name,
                object,
                program,
            }),
            Err(_) => {
                let why = "its symbols are unreadable".to_owned();
                self.unread.push(Unread { name, why });
            }
        }
    }

    /// A mapped file: by the kernel's own link, which cannot name another file, otherwise by its
    /// name.
    fn open_mapped(&self, mapping: MapsEntry<'_>) -> Result<Option<File>, String> {
        let link = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
        if let found @ Ok(_) = self.open(link, None) {
            return found;
        }
        let path = maps::unescaped(mapping.path);
        let inside = [b"root", path.as_slice()].concat();
        let found = self.open(inside, Some(mapping.ino));
        if found.is_err() && path.ends_with(link::DELETION_MARK) {
            return Err("the file was deleted: only root can open it".to_owned());
        }
        found
    }

    /// Opens a regular file for reading, if it is the wanted inode; `None` for other types. It is
    /// pinned first: opening a device or a pipe for reading can have effects.
    fn open(&self, path: impl Arg + Clone, ino: Option<u64>) -> Result<Option<File>, String> {
        let said = |error: Errno| match error {
            Errno::ACCESS | Errno::PERM => denied("it"),
            other => std::io::Error::from(other).to_string(),
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let pinned =
            rustix::fs::openat(self.base, path.clone(), flags, Mode::empty()).map_err(said)?;
        let stat = rustix::fs::fstat(&pinned).map_err(said)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        if ino.is_some_and(|ino| ino != stat.st_ino) {
            return Err("the file was replaced".to_owned());
        }
        let opened: Result<OwnedFd, Errno> = match &self.probe.own {
            Some(own) => files::open_file_at(own, DecInt::new(files::number_of(&pinned))),
            None => files::open_file_at(self.base, path),
        };
        opened.map(|file| Some(File::from(file))).map_err(said)
    }
}

fn denied(what: &str) -> String {
    format!("no permission to read {what}")
}

fn file_name(path: &[u8]) -> Text {
    Text::from(link::file_name(path))
}

/// The list of mappings. The kernel returns it a page at a time: only an empty read is the end.
fn read_maps(base: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let file = files::open_file_at(base, c"maps")?;
    let mut bytes = Vec::new();
    let mut page = vec![0; 1 << 16];
    while bytes.len() < MOST_MAPS {
        let read = rustix::io::read(&file, &mut page)?;
        if read == 0 {
            break;
        }
        bytes.extend_from_slice(&page[..read]);
    }
    Ok(bytes)
}
