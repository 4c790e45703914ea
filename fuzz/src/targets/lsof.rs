//! The output of `lsof -F`: written again with NUL, it reads as the same.

use fdguard_probe::parse::lsof::{ProcessSet, parse, unescape};

pub(crate) fn run(bytes: &[u8]) {
    let processes = parse(bytes);
    for process in &processes {
        let _ = (process.pid(), process.file(b"NOFD"));
        for file in &process.files {
            let _ = (
                file.column(),
                file.number(b'D'),
                file.tcp(b"ST"),
                file.has_flag(b"CX"),
            );
            if let (Some(raw), Some(text)) = (file.get(b'n'), file.text(b'n')) {
                assert!(text.len() <= raw.len());
            }
        }
    }
    assert_eq!(parse(&written(&processes)), processes);
    assert!(unescape(bytes).len() <= bytes.len());
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
