//! The output of `lsof -F`: one letter per field, for programs that already read it.

use std::collections::BTreeMap;
use std::io::Write;

use fdguard_core::{Class, Detail, FdEntry, Mode, Snapshot, Summary, Text};
use fdguard_proc::link::DELETION_MARK;

/// Login names by user id.
pub type LoginNames = BTreeMap<u32, String>;

/// Parses `/etc/passwd`; if a user has two names, the first counts.
#[must_use]
pub fn parse_passwd(text: &str) -> LoginNames {
    let mut names = LoginNames::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next(), fields.nth(1));
        if let (Some(name), Some(Ok(uid))) = (name, uid.map(str::parse)) {
            names.entry(uid).or_insert_with(|| name.to_owned());
        }
    }
    names
}

/// Writes every process and descriptor; fields end in a newline, or in NUL with one newline per
/// set.
pub fn write(
    out: &mut dyn Write,
    snapshots: &[(Snapshot, Summary)],
    names: &LoginNames,
    null: bool,
) -> anyhow::Result<()> {
    for (snapshot, _) in snapshots {
        let mut set = Fields {
            out: &mut *out,
            null,
        };
        let process = &snapshot.process;
        set.field('p', process.pid.to_string().as_bytes())?;
        if let Some(pgid) = process.pgid {
            set.field('g', pgid.to_string().as_bytes())?;
        }
        if let Some(ppid) = process.ppid {
            set.field('R', ppid.to_string().as_bytes())?;
        }
        set.field('c', process.comm.as_bytes())?;
        if let Some(uid) = process.uid {
            set.field('u', uid.to_string().as_bytes())?;
            if let Some(name) = names.get(&uid) {
                set.field('L', name.as_bytes())?;
            }
        }
        set.end()?;
        for entry in snapshot.fds.iter().flatten() {
            write_entry(&mut set, entry)?;
        }
    }
    Ok(())
}

struct Fields<'a> {
    out: &'a mut dyn Write,
    null: bool,
}

impl Fields<'_> {
    /// Escapes a newline in a value, which would start another field; lsof does the same.
    fn field(&mut self, letter: char, value: &[u8]) -> std::io::Result<()> {
        write!(self.out, "{letter}")?;
        for byte in value {
            match byte {
                b'\n' if !self.null => self.out.write_all(b"\\n")?,
                0 => self.out.write_all(b"\\0")?,
                other => self.out.write_all(&[*other])?,
            }
        }
        self.out.write_all(if self.null { b"\0" } else { b"\n" })
    }

    fn end(&mut self) -> std::io::Result<()> {
        if self.null {
            self.out.write_all(b"\n")
        } else {
            Ok(())
        }
    }
}

fn write_entry(set: &mut Fields<'_>, entry: &FdEntry) -> std::io::Result<()> {
    set.field('f', entry.fd.to_string().as_bytes())?;
    set.field('a', access(entry.mode).as_bytes())?;
    set.field('l', lock(entry).as_bytes())?;
    set.field('t', kind(entry).as_bytes())?;
    if let Some(flags) = flags(entry) {
        set.field('G', format!("0x{flags:x};0x0").as_bytes())?;
    }
    write_device(set, entry)?;
    if let Some(id) = entry.id {
        set.field('i', id.ino.to_string().as_bytes())?;
    }
    match &entry.detail {
        Detail::File(file) => {
            if let Some(pos) = file.pos {
                set.field('o', format!("0t{pos}").as_bytes())?;
            }
            if let Some(size) = file.size {
                set.field('s', size.to_string().as_bytes())?;
            }
            if let Some(links) = file.links {
                set.field('k', links.to_string().as_bytes())?;
            }
        }
        Detail::Inet(_) => set.field('P', protocol(&entry.class).as_bytes())?,
        _ => {}
    }
    set.field('n', &name(entry))?;
    if let Detail::Inet(inet) = &entry.detail {
        for (key, value) in [
            ("ST", inet.state.as_deref().map(str::to_owned)),
            ("QR", number(inet.rx_queue)),
            ("QS", number(inet.tx_queue)),
        ] {
            if let Some(value) = value {
                set.field('T', format!("{key}={value}").as_bytes())?;
            }
        }
    }
    set.end()
}

/// The device of a file's file system, and that of a device itself. For sockets lsof puts the inode
/// into the field `d`.
fn write_device(set: &mut Fields<'_>, entry: &FdEntry) -> std::io::Result<()> {
    if let Detail::File(file) = &entry.detail {
        let dev = file.dev.as_ref().and_then(Text::as_str);
        for (letter, device) in [('D', dev), ('r', file.device.as_deref())] {
            if let Some(number) = device.and_then(device_number) {
                set.field(letter, format!("0x{number:x}").as_bytes())?;
            }
        }
    }
    if let Some(id) = entry.id.filter(|_| is_socket(&entry.detail)) {
        set.field('d', id.ino.to_string().as_bytes())?;
    }
    Ok(())
}

/// `254:0` as one number, packed as in the C library.
fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    let (major, minor): (u64, u64) = (major.parse().ok()?, minor.parse().ok()?);
    let low = (major & 0xfff) << 8 | minor & 0xff;
    Some(low | (major & !0xfff) << 32 | (minor & !0xff) << 12)
}

fn is_socket(detail: &Detail) -> bool {
    matches!(
        detail,
        Detail::Inet(_) | Detail::Unix(_) | Detail::Socket(_)
    )
}

/// The flags as in fdinfo.
fn flags(entry: &FdEntry) -> Option<u32> {
    let mode = match entry.mode? {
        Mode::Read => 0,
        Mode::Write => 1,
        Mode::ReadWrite => 2,
        Mode::Path => 0o10_000_000,
    };
    let cloexec = if entry.cloexec? { 0o2_000_000 } else { 0 };
    Some(mode | cloexec | entry.flags?.bits())
}

fn number(value: Option<u64>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn access(mode: Option<Mode>) -> &'static str {
    match mode {
        Some(Mode::Read) => "r",
        Some(Mode::Write) => "w",
        Some(Mode::ReadWrite) => "u",
        Some(Mode::Path) | None => " ",
    }
}

/// lsof's letter for the lock: `R`/`W` on the whole file, `r`/`w` on part of it.
fn lock(entry: &FdEntry) -> &'static str {
    let Detail::File(file) = &entry.detail else {
        return " ";
    };
    let Some(lock) = file.locks.iter().find(|lock| lock.kind != "LEASE") else {
        return " ";
    };
    match (lock.access.as_str(), lock.start == 0 && lock.end.is_none()) {
        ("WRITE", true) => "W",
        ("WRITE", false) => "w",
        (_, true) => "R",
        (_, false) => "r",
    }
}

fn kind(entry: &FdEntry) -> &'static str {
    match &entry.class {
        Class::Regular
        | Class::SqliteDb
        | Class::SqliteWal
        | Class::SqliteShm
        | Class::SqliteJournal
        | Class::Deleted
        | Class::Memfd => "REG",
        Class::Directory => "DIR",
        Class::Chardev | Class::PtyMaster | Class::Tty => "CHR",
        Class::Blockdev => "BLK",
        Class::Pipe | Class::Fifo => "FIFO",
        Class::Unix => "unix",
        Class::Netlink => "netlink",
        Class::Packet => "pack",
        Class::Tcp(_) | Class::Udp | Class::Raw => match &entry.detail {
            Detail::Inet(inet) => match &inet.local {
                Some(local) if local.starts_with('[') => "IPv6",
                Some(_) => "IPv4",
                None => "sock",
            },
            _ => "sock",
        },
        Class::Vsock => "sock",
        _ => "a_inode",
    }
}

fn protocol(class: &Class) -> &'static str {
    match class {
        Class::Tcp(_) => "TCP",
        Class::Udp => "UDP",
        _ => "RAW",
    }
}

fn name(entry: &FdEntry) -> Vec<u8> {
    let mut name = match &entry.class {
        Class::Memfd => [b"/memfd:", entry.target.as_bytes()].concat(),
        Class::Pipe => b"pipe".to_vec(),
        _ => entry.target.as_bytes().to_vec(),
    };
    if entry.deleted || entry.class == Class::Memfd {
        name.extend_from_slice(DELETION_MARK);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::{device_number, parse_passwd};

    #[test]
    fn device_numbers_are_packed_as_lsof_prints_them() {
        assert_eq!(device_number("254:0"), Some(0xfe00));
        assert_eq!(device_number("1:3"), Some(0x103));
        assert_eq!(device_number("0:300"), Some(0x10_002c));
        assert_eq!(device_number("none"), None);
    }

    #[test]
    fn the_first_name_of_a_user_counts() {
        let names = parse_passwd("root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\nbad\n");
        assert_eq!(
            names.into_iter().collect::<Vec<_>>(),
            [(0, "root".to_owned())]
        );
    }
}
