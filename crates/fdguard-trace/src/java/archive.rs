//! The names in a Java archive, from the directory at the end of a zip file, and its main class.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;

use flate2::read::DeflateDecoder;

/// The fixed part of the record at the end.
const END: usize = 22;
/// The comment after it is at most this long.
const COMMENT: usize = u16::MAX as usize;
/// The fixed part of an entry.
const ENTRY: usize = 46;
/// The fixed part before the contents of a file.
const LOCAL: usize = 30;
/// More than any archive of classes needs.
const LARGEST: u32 = 64 << 20;
/// More than any manifest needs.
const LARGEST_MANIFEST: u32 = 1 << 20;

/// The names of all entries.
pub(super) fn names(file: &File) -> io::Result<Vec<String>> {
    let entries = entries(&read_directory(file)?);
    Ok(entries.into_iter().map(|entry| entry.name).collect())
}

/// What `java -jar` reads from the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    /// The class that it starts.
    pub(super) main_class: Option<String>,
    /// Further archives, relative to this one.
    pub(super) class_path: Vec<String>,
}

/// The manifest of an archive.
pub(super) fn manifest(file: &File) -> Option<Manifest> {
    let entries = entries(&read_directory(file).ok()?);
    let mut entries = entries.into_iter();
    let manifest = entries.find(|entry| entry.name == "META-INF/MANIFEST.MF")?;
    let text = contents(file, &manifest).ok()?;
    let text = String::from_utf8_lossy(&text);
    let class_path = in_manifest(&text, "Class-Path").unwrap_or_default();
    Some(Manifest {
        main_class: in_manifest(&text, "Main-Class"),
        class_path: class_path.split_whitespace().map(str::to_owned).collect(),
    })
}

fn read_directory(file: &File) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    let tail = size.min((END + COMMENT) as u64);
    let bytes = read(file, size - tail, tail)?;
    let place = directory(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    read(file, place.start.into(), place.size.into())
}

fn read(file: &File, start: u64, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).unwrap_or_default()];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

/// The contents of a small file in the archive.
fn contents(file: &File, entry: &Entry) -> io::Result<Vec<u8>> {
    let start = u64::from(entry.start);
    let head = read(file, start, LOCAL as u64)?;
    let lengths = short(&head, 26).zip(short(&head, 28));
    let (name, extra) = lengths.ok_or(io::ErrorKind::InvalidData)?;
    let size = entry.size.min(LARGEST_MANIFEST);
    let packed = read(file, start + (LOCAL + name + extra) as u64, size.into())?;
    if !entry.is_deflated {
        return Ok(packed);
    }
    let mut text = Vec::new();
    let mut limited = DeflateDecoder::new(&*packed).take(LARGEST_MANIFEST.into());
    limited.read_to_end(&mut text)?;
    Ok(text)
}

/// A value of the main section of a manifest. A line that begins with a space continues the one
/// before.
fn in_manifest(text: &str, key: &str) -> Option<String> {
    let joined = text.replace("\r\n", "\n").replace("\n ", "");
    let mut lines = joined.lines().take_while(|line| !line.is_empty());
    let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    value.map(|value| value.trim().to_owned())
}

/// Where the directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    start: u32,
    size: u32,
}

/// Reads the record at the end of the last bytes of a file.
fn directory(tail: &[u8]) -> Option<Place> {
    let last = tail.len().checked_sub(END)?;
    let at = (0..=last)
        .rev()
        .find(|at| tail[*at..].starts_with(b"PK\x05\x06"))?;
    let place = Place {
        size: number(tail, at + 12)?,
        start: number(tail, at + 16)?,
    };
    (place.size <= LARGEST).then_some(place)
}

/// A file in the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    is_deflated: bool,
    /// The size as it is stored.
    size: u32,
    /// Where it is.
    start: u32,
}

/// The entries of a directory, up to the first that is damaged.
fn entries(mut rest: &[u8]) -> Vec<Entry> {
    let mut found = Vec::new();
    while rest.starts_with(b"PK\x01\x02") {
        let lengths = [28, 30, 32].map(|at| short(rest, at));
        let [Some(name), Some(extra), Some(comment)] = lengths else {
            break;
        };
        let Some(text) = rest.get(ENTRY..ENTRY + name) else {
            break;
        };
        found.push(Entry {
            name: String::from_utf8_lossy(text).into_owned(),
            is_deflated: short(rest, 10) == Some(8),
            size: number(rest, 20).unwrap_or_default(),
            start: number(rest, 42).unwrap_or_default(),
        });
        rest = rest
            .get(ENTRY + name + extra + comment..)
            .unwrap_or_default();
    }
    found
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    let two: [u8; 2] = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(usize::from(u16::from_le_bytes(two)))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(four))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::{directory, entries, in_manifest, names};

    /// An archive without contents, with a comment at its end.
    fn archive(names: &[&str]) -> Vec<u8> {
        let mut bytes = b"PK\x03\x04 the files".to_vec();
        let start = u32::try_from(bytes.len()).unwrap();
        for name in names {
            let mut entry = [0; super::ENTRY];
            entry[..4].copy_from_slice(b"PK\x01\x02");
            entry[28..30].copy_from_slice(&u16::try_from(name.len()).unwrap().to_le_bytes());
            entry[30] = 2;
            bytes.extend(entry);
            bytes.extend(name.bytes());
            bytes.extend(b"xx");
        }
        let size = u32::try_from(bytes.len()).unwrap() - start;
        bytes.extend(b"PK\x05\x06\0\0\0\0\0\0\0\0");
        bytes.extend(size.to_le_bytes());
        bytes.extend(start.to_le_bytes());
        bytes.extend(b"\x03\0abc");
        bytes
    }

    #[test]
    fn the_names_of_an_archive() {
        let wanted = ["META-INF/MANIFEST.MF", "io/netty/channel/Channel.class"];
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&archive(&wanted)).unwrap();
        assert_eq!(names(&file).unwrap(), wanted);
        let other = tempfile::tempfile().unwrap();
        assert!(names(&other).is_err());
    }

    #[test]
    fn a_manifest_may_break_its_lines() {
        let text = "Manifest-Version: 1.0\r\nMain-Class: com.example.with.a.long.name.M\r\n ain\r\n\r\nName: a\r\nMain-Class: b\r\n";
        let found = in_manifest(text, "Main-Class");
        assert_eq!(found.as_deref(), Some("com.example.with.a.long.name.Main"));
        assert_eq!(in_manifest(text, "Class-Path"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _place = directory(&bytes);
            let _names = entries(&bytes);
            let _names = entries(&[b"PK\x01\x02".as_slice(), &bytes].concat());
        }
    }
}
