//! The output of `lsof -F`: process sets with file sets, every field kept under its letter.
//!
//! Fields end in NUL (`-F…0`, a newline then ends each set) or in a newline. Their meaning is
//! decided elsewhere; only lsof's escapes are decoded here.

use std::borrow::Cow;

use fdguard_core::{Fd, Pid};

use fdguard_proc::ascii::{decimal, hexadecimal};

/// One field: the letter that names it, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LsofField<'a> {
    /// The letter; unknown letters are kept, too.
    pub letter: u8,
    /// The value as printed, escapes included.
    pub value: &'a [u8],
}

/// The fields of one set, in the order of the output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LsofSet<'a>(pub Vec<LsofField<'a>>);

/// One process and its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessSet<'a> {
    /// Fields of the process, `p` first.
    pub fields: LsofSet<'a>,
    /// Its files, each beginning with `f`.
    pub files: Vec<LsofSet<'a>>,
}

/// The content of the descriptor column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LsofColumn<'a> {
    /// A descriptor by its number.
    Number(Fd),
    /// A descriptor from 10000 on, of which lsof prints only the last three digits: `*345`.
    Tail(Fd),
    /// Not a descriptor, or not readable: `cwd`, `txt`, `mem`, `NOFD`, …
    Word(&'a [u8]),
}

/// Parses the output of lsof. Anything before the first process is dropped, as are the markers of
/// repeat mode.
#[must_use]
pub fn parse(bytes: &[u8]) -> Vec<ProcessSet<'_>> {
    let end = if bytes.contains(&0) { 0 } else { b'\n' };
    let mut processes: Vec<ProcessSet<'_>> = Vec::new();
    for part in bytes.split(|byte| *byte == end) {
        // With NUL, a newline ends each set: it precedes the next letter, and is not a letter
        // itself.
        let start = part.iter().take_while(|byte| **byte == b'\n').count();
        let Some((letter, value)) = part[start..].split_first() else {
            continue;
        };
        let field = LsofField {
            letter: *letter,
            value,
        };
        match (letter, processes.last_mut()) {
            (b'p', _) => processes.push(ProcessSet {
                fields: LsofSet(vec![field]),
                files: Vec::new(),
            }),
            (b'm', _) | (_, None) => {}
            (b'f', Some(process)) => process.files.push(LsofSet(vec![field])),
            (_, Some(process)) => process
                .files
                .last_mut()
                .unwrap_or(&mut process.fields)
                .0
                .push(field),
        }
    }
    processes
}

impl<'a> ProcessSet<'a> {
    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        Pid::try_from(decimal(self.fields.get(b'p')?)?).ok()
    }

    /// The first file whose column contains this word.
    #[must_use]
    pub fn file(&self, word: &[u8]) -> Option<&LsofSet<'a>> {
        self.files.iter().find(|file| file.get(b'f') == Some(word))
    }
}

impl<'a> LsofSet<'a> {
    /// The value of a field as printed.
    #[must_use]
    pub fn get(&self, letter: u8) -> Option<&'a [u8]> {
        self.0
            .iter()
            .find(|field| field.letter == letter)
            .map(|field| field.value)
    }

    /// A field as a number: decimal, `0t…` or `0x…`.
    #[must_use]
    pub fn number(&self, letter: u8) -> Option<u64> {
        number(self.get(letter)?)
    }

    /// A field with lsof's escapes decoded.
    #[must_use]
    pub fn text(&self, letter: u8) -> Option<Cow<'a, [u8]>> {
        self.get(letter).map(unescape)
    }

    /// One part of the TCP information, such as `ST`: it is printed as `TST=LISTEN`.
    #[must_use]
    pub fn tcp(&self, key: &[u8]) -> Option<&'a [u8]> {
        self.0
            .iter()
            .filter(|field| field.letter == b'T')
            .find_map(|field| field.value.strip_prefix(key)?.strip_prefix(b"="))
    }

    /// Whether the flags (by name, `+fg`) contain this one, on either side of the semicolon: Linux
    /// has `CX` among those of the file, macOS among those of the process.
    #[must_use]
    pub fn has_flag(&self, name: &[u8]) -> bool {
        self.get(b'G').is_some_and(|flags| {
            flags
                .split(|byte| matches!(byte, b',' | b';'))
                .any(|flag| flag == name)
        })
    }

    /// The content of the descriptor column.
    #[must_use]
    pub fn column(&self) -> Option<LsofColumn<'a>> {
        let value = self.get(b'f')?;
        let number = |digits| Fd::try_from(decimal(digits)?).ok();
        Some(match value.strip_prefix(b"*") {
            Some(tail) if tail.len() == 3 => {
                number(tail).map_or(LsofColumn::Word(value), LsofColumn::Tail)
            }
            _ => number(value).map_or(LsofColumn::Word(value), LsofColumn::Number),
        })
    }
}

fn number(value: &[u8]) -> Option<u64> {
    if value.starts_with(b"0x") {
        return hexadecimal(value);
    }
    decimal(value.strip_prefix(b"0t").unwrap_or(value))
}

/// Decodes lsof's escapes: `\n` and similar, `\\`, `\xff`. Control characters that it prints as
/// `^A` stay so, since a plain `^` is not escaped: they cannot be distinguished.
#[must_use]
pub fn unescape(value: &[u8]) -> Cow<'_, [u8]> {
    if !value.contains(&b'\\') {
        return Cow::Borrowed(value);
    }
    let mut plain = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((first, tail)) = rest.split_first() {
        let (byte, length) = match (first, tail) {
            (b'\\', [b'\\', ..]) => (b'\\', 2),
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b'b', ..]) => (0x08, 2),
            (b'\\', [b'f', ..]) => (0x0c, 2),
            (b'\\', [b'x', high, low, ..]) => match hex_pair(*high, *low) {
                Some(byte) => (byte, 4),
                None => (b'\\', 1),
            },
            (other, _) => (*other, 1),
        };
        plain.push(byte);
        rest = rest.get(length..).unwrap_or_default();
    }
    Cow::Owned(plain)
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let digit = |byte| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{LsofColumn, LsofField, LsofSet, ProcessSet, parse, unescape};

    const RECORDED: &[u8] = b"p812\0R1\0cserver\0u1000\0\n\
        fcwd\0a \0l \0tDIR\0D0xfe00\0i2\0k21\0n/\0\n\
        f3\0au\0lW\0tREG\0GRW,LG,CX\0D0xfe00\0s100\0i77\0k1\0n/srv/a\\nb\0\n\
        f47\0au\0l \0tIPv4\0GRW,CX\0d189726\0PTCP\0n127.0.0.1:38039\0TST=LISTEN\0TQR=1\0TQS=0\0\n\
        p813\0R812\0cworker\0u1000\0\nf0\0ar\0tCHR\0n/dev/null\0\n";

    #[test]
    fn processes_and_files_come_apart_at_their_letters() {
        let processes = parse(RECORDED);
        assert_eq!(processes.len(), 2);
        let (first, second) = (&processes[0], &processes[1]);
        assert_eq!((first.pid(), second.pid()), (Some(812), Some(813)));
        assert_eq!(first.fields.get(b'c'), Some(&b"server"[..]));
        assert_eq!((first.files.len(), second.files.len()), (3, 1));
        assert_eq!(first.file(b"cwd").unwrap().get(b'n'), Some(&b"/"[..]));
        let file = &first.files[1];
        assert_eq!(file.column(), Some(LsofColumn::Number(3)));
        assert_eq!(
            (file.number(b'D'), file.number(b's')),
            (Some(0xfe00), Some(100))
        );
        assert_eq!(file.text(b'n').unwrap(), &b"/srv/a\nb"[..]);
        assert!(file.has_flag(b"CX") && !file.has_flag(b"C"));
        let socket = &first.files[2];
        assert_eq!(socket.tcp(b"ST"), Some(&b"LISTEN"[..]));
        assert_eq!(socket.tcp(b"QR"), Some(&b"1"[..]));
    }

    #[test]
    fn newlines_serve_as_terminators_as_well() {
        let lines: Vec<u8> = RECORDED
            .split(|byte| *byte == b'\n')
            .flat_map(|set| set.iter().map(|b| if *b == 0 { b'\n' } else { *b }))
            .collect();
        assert_eq!(parse(&lines), parse(RECORDED));
    }

    /// Found by fuzzing: the second newline was taken for a letter.
    #[test]
    fn a_blank_line_between_sets_is_no_field() {
        assert_eq!(parse(b"p1\0\n\n\nf3\0\n"), parse(b"p1\0\nf3\0\n"));
    }

    #[test]
    fn flags_of_the_process_stand_behind_a_semicolon() {
        let set = &parse(b"p1\0\nf4\0GR,W,NB;CX\0\n")[0].files[0];
        assert!(set.has_flag(b"CX") && set.has_flag(b"W") && !set.has_flag(b"PATH"));
    }

    #[test]
    fn numbers_from_ten_thousand_on_are_cut_to_their_tail() {
        let processes = parse(b"p1\nf9999\nf*345\nfmem\nf*34\n");
        let columns: Vec<_> = processes[0].files.iter().map(LsofSet::column).collect();
        assert_eq!(
            columns,
            [
                Some(LsofColumn::Number(9999)),
                Some(LsofColumn::Tail(345)),
                Some(LsofColumn::Word(b"mem")),
                Some(LsofColumn::Word(b"*34")),
            ]
        );
    }

    #[test]
    fn escapes_are_undone_and_what_is_none_stays() {
        assert_eq!(
            unescape(br"/x/\xff\xfe-caf\xe9.log"),
            &b"/x/\xff\xfe-caf\xe9.log"[..]
        );
        assert_eq!(
            unescape(br"two\nlines\t^[[31m\\.log"),
            &b"two\nlines\t^[[31m\\.log"[..]
        );
        assert_eq!(unescape(br"\q\x4\xzz\"), &br"\q\x4\xzz\"[..]);
        assert_eq!(unescape(b"plain"), &b"plain"[..]);
    }

    fn written(processes: &[ProcessSet<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        for process in processes {
            for set in std::iter::once(&process.fields).chain(&process.files) {
                for field in &set.0 {
                    out.push(field.letter);
                    out.extend_from_slice(field.value);
                    out.push(0);
                }
                out.push(b'\n');
            }
        }
        out
    }

    fn set_of(first: u8, rest: &[(u8, Vec<u8>)]) -> LsofSet<'_> {
        let head = LsofField {
            letter: first,
            value: b"7",
        };
        let rest = rest.iter().map(|(letter, value)| LsofField {
            letter: *letter,
            value,
        });
        LsofSet(std::iter::once(head).chain(rest).collect())
    }

    /// Any letter except those that begin a set or mark a repetition, followed by anything except
    /// NUL.
    fn fields() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
        let letter = any::<u8>().prop_filter("begins a set", |byte| !b"pfm\0\n".contains(byte));
        let value = prop::collection::vec(1..=255u8, 0..12);
        prop::collection::vec((letter, value), 0..6)
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            for process in parse(&bytes) {
                let _ = process.pid();
                for file in &process.files {
                    drop((file.column(), file.number(b's'), file.text(b'n'), file.has_flag(b"CX")));
                }
            }
            prop_assert!(unescape(&bytes).len() <= bytes.len());
        }

        #[test]
        fn what_is_written_comes_back(process in fields(), files in prop::collection::vec(fields(), 0..4)) {
            let set = ProcessSet {
                fields: set_of(b'p', &process),
                files: files.iter().map(|file| set_of(b'f', file)).collect(),
            };
            let bytes = written(std::slice::from_ref(&set));
            prop_assert_eq!(parse(&bytes), vec![set]);
        }
    }
}
