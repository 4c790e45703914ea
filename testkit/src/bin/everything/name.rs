//! Files with misleading names: deleted ones, ones that only look deleted, ones that are not text.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use testkit::{VictimReport, number};

pub(crate) fn open(report: &mut VictimReport, dir: &Path) -> io::Result<()> {
    deleted(report, dir)?;
    look_deleted(report, dir)?;
    odd(report, dir)
}

fn deleted(report: &mut VictimReport, dir: &Path) -> io::Result<()> {
    for (what, name) in [
        ("deleted file", "gone.txt"),
        ("deleted file that was named so", "was (deleted)"),
    ] {
        let path = dir.join(name);
        let file = File::create(&path)?;
        file.set_len(11)?;
        fs::remove_file(&path)?;
        report
            .hold(what, "deleted", file)?
            .at(&path)
            .deleted()
            .with("links", 0)
            .with("size", 11);
    }

    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let unnamed = rustix::fs::open(dir, flags, Mode::from_raw_mode(0o600));
    // The file system makes up a name for it; only the kernel knows which.
    let made_up = unnamed.as_ref().ok().map(|file| {
        let link = fs::read_link(format!("/proc/self/fd/{}", number(file)))?;
        Ok::<_, io::Error>(unmarked(link))
    });
    let unnamed = unnamed.map_err(io::Error::from);
    if let Some(holding) = report.hold_if_given("file without a name", "deleted", unnamed)? {
        holding.deleted().with("links", 0);
        if let Some(path) = made_up {
            holding.at(&path?);
        }
    }
    Ok(())
}

fn look_deleted(report: &mut VictimReport, dir: &Path) -> io::Result<()> {
    let path = dir.join("foo (deleted)");
    let file = File::create(&path)?;
    report
        .hold("file named like a deleted one", "regular", file)?
        .at(&path)
        .with("links", 1);

    let opened = dir.join("first-name");
    let file = File::create(&opened)?;
    fs::hard_link(&opened, dir.join("second-name"))?;
    fs::remove_file(&opened)?;
    report
        .hold("file that lost the name it was opened by", "regular", file)?
        .at(&opened)
        .with("links", 1);
    Ok(())
}

fn odd(report: &mut VictimReport, dir: &Path) -> io::Result<()> {
    let cases: [(&str, &[u8]); 4] = [
        ("file with a name that is no text", b"\xff\xfe-caf\xe9.log"),
        (
            "file with line end and escapes",
            b"two\nlines\t\x1b[31m\\.log",
        ),
        ("file with a name in brackets", b"socket:[12345]"),
        ("file with spaces around its name", b" spaced "),
    ];
    for (what, name) in cases {
        let path = dir.join(OsStr::from_bytes(name));
        report
            .hold(what, "regular", File::create(&path)?)?
            .at(&path);
    }
    Ok(())
}

fn unmarked(link: PathBuf) -> PathBuf {
    let mut bytes = link.into_os_string().into_vec();
    if bytes.ends_with(b" (deleted)") {
        bytes.truncate(bytes.len() - b" (deleted)".len());
    }
    OsStr::from_bytes(&bytes).into()
}
