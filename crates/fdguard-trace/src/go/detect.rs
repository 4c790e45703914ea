//! Whether a program is written in Go. Its runtime makes system calls without the C library, even
//! if that is linked.

use std::fs::File;
use std::path::Path;

use object::Endianness;
use object::elf::{FileHeader64, NoteType, PF_W, PT_LOAD, PT_NOTE};
use object::read::ReadRef;
use object::read::elf::{FileHeader as _, ProgramHeader as _};

/// The names of the sections that the Go linker adds.
const SECTIONS: [&[u8]; 2] = [b".go.buildinfo", b".note.go.buildid"];
/// The owner of its note, and the type of the build note.
const OWNER: &[u8] = b"Go";
const BUILD_ID: NoteType = NoteType(4);
/// If the sections were stripped: at the start of the writable data.
const MAGIC: &[u8] = b"\xff Go buildinf:";
const SEARCHED: u64 = 64 * 1024;

/// Whether the file is a Go program. An unreadable file is not.
pub(crate) fn is_go(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| tells_go(&object::ReadCache::new(file)).unwrap_or(false))
}

fn tells_go<'d, R: ReadRef<'d>>(file: R) -> object::Result<bool> {
    let header = FileHeader64::<Endianness>::parse(file)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, file);
    let has_section = sections.is_ok_and(|sections| {
        sections.iter().any(|one| {
            let name = sections.section_name(endian, one);
            name.is_ok_and(|name| SECTIONS.contains(&name))
        })
    });
    if has_section {
        return Ok(true);
    }
    for segment in header.program_headers(endian, file)? {
        let is_it = match segment.p_type(endian) {
            PT_NOTE => has_note(segment, endian, file)?,
            PT_LOAD if segment.p_flags(endian).contains(PF_W) => {
                let size = segment.p_filesz(endian).min(SEARCHED);
                let begin = file.read_bytes_at(segment.p_offset(endian), size);
                begin.is_ok_and(|bytes| bytes.windows(MAGIC.len()).any(|part| part == MAGIC))
            }
            _ => false,
        };
        if is_it {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_note<'d, R: ReadRef<'d>>(
    segment: &object::elf::ProgramHeader64<Endianness>,
    endian: Endianness,
    file: R,
) -> object::Result<bool> {
    let Some(mut notes) = segment.notes(endian, file)? else {
        return Ok(false);
    };
    while let Some(note) = notes.next()? {
        if note.name() == OWNER && note.n_type(endian) == BUILD_ID {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::tells_go;

    /// A file with one segment of this type and these flags, and no sections.
    fn elf(kind: u32, flags: u32, content: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
        file.extend(2_u16.to_le_bytes()); // ET_EXEC
        file.extend(62_u16.to_le_bytes()); // x86-64
        file.extend(1_u32.to_le_bytes());
        for word in [0_u64, 64, 0] {
            file.extend(word.to_le_bytes()); // entry, program headers, section headers
        }
        file.extend(0_u32.to_le_bytes());
        for half in [64_u16, 56, 1, 64, 0, 0] {
            file.extend(half.to_le_bytes());
        }
        file.extend(kind.to_le_bytes());
        file.extend(flags.to_le_bytes());
        let size = content.len() as u64;
        for word in [120_u64, 0x40_0078, 0x40_0078, size, size, 4] {
            file.extend(word.to_le_bytes()); // offset, addresses, sizes, alignment
        }
        assert_eq!(file.len(), 120);
        file.extend(content);
        file
    }

    fn note(owner: &[u8; 4], kind: u32) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [4, 8, kind] {
            note.extend(word.to_le_bytes());
        }
        note.extend(owner);
        note.extend(b"madeup\0\0");
        note
    }

    #[test]
    fn a_stripped_go_program_is_told_by_its_note_or_its_build() {
        const NOTE: u32 = 4;
        let tells = |file: &[u8]| tells_go(file).unwrap();
        assert!(tells(&elf(NOTE, 4, &note(b"Go\0\0", 4))));
        assert!(!tells(&elf(NOTE, 4, &note(b"GNU\0", 4))));
        assert!(!tells(&elf(NOTE, 4, &note(b"Go\0\0", 3))));
        let build = [&[0; 32][..], b"\xff Go buildinf:\x08\x02"].concat();
        assert!(tells(&elf(1, 6, &build)));
        assert!(!tells(&elf(1, 4, &build)), "not in what is only read");
    }

    #[test]
    fn what_is_no_program_is_not_go() {
        assert!(!super::is_go(std::path::Path::new("/etc/passwd")));
        assert!(tells_go(&b"\x7fELF\x02\x01\x01"[..]).is_err());
        let cut = elf(4, 4, &note(b"Go\0\0", 4));
        assert!(!tells_go(&cut[..130]).unwrap_or(false));
    }
}
