//! The victim's side: keeps descriptors, reports what they are, and waits.

use std::fs;
use std::io::{self, BufRead as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{FileType, OFlags};
use rustix::io::FdFlags;
use serde_json::{Map, Value, json};

use crate::VictimHolding;

/// What a victim holds, and the descriptors themselves so that they stay open.
#[derive(Debug)]
pub struct VictimReport {
    holdings: Vec<VictimHolding>,
    refused: Vec<String>,
    kept: Vec<OwnedFd>,
    extra: Map<String, Value>,
}

impl VictimReport {
    /// A report that already knows the standard streams.
    pub fn new() -> io::Result<Self> {
        let (stdin, stdout) = (io::stdin(), io::stdout());
        Ok(Self {
            holdings: vec![
                stream(0, "standard input", stdin.as_fd())?,
                stream(1, "standard output", stdout.as_fd())?,
                VictimHolding {
                    fd: 2,
                    what: "standard error".to_owned(),
                    ..VictimHolding::default()
                },
            ],
            refused: Vec::new(),
            kept: Vec::new(),
            extra: Map::new(),
        })
    }

    /// Keeps a descriptor and records it. Mode and close-on-exec come from `fcntl`.
    pub fn hold(
        &mut self,
        what: &str,
        class: &str,
        fd: impl Into<OwnedFd>,
    ) -> io::Result<&mut VictimHolding> {
        let fd = fd.into();
        let holding = VictimHolding {
            fd: number(&fd),
            what: what.to_owned(),
            class: Some(class.to_owned()),
            mode: Some(mode(&fd)?.to_owned()),
            cloexec: Some(rustix::io::fcntl_getfd(&fd)?.contains(FdFlags::CLOEXEC)),
            ..VictimHolding::default()
        };
        self.kept.push(fd);
        self.holdings.push(holding);
        let last = self.holdings.len() - 1;
        Ok(&mut self.holdings[last])
    }

    /// Holds the descriptor, or records that the kernel refused it.
    pub fn hold_if_given(
        &mut self,
        what: &str,
        class: &str,
        opened: io::Result<OwnedFd>,
    ) -> io::Result<Option<&mut VictimHolding>> {
        match opened {
            Ok(fd) => self.hold(what, class, fd).map(Some),
            Err(error) => {
                self.refused.push(format!("{what}: {error}"));
                Ok(None)
            }
        }
    }

    /// Adds a member of its own to the line.
    pub fn with(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        self.extra.insert(key.to_owned(), value.into());
        self
    }

    /// The number of held descriptors, including the standard streams.
    #[must_use]
    pub fn count(&self) -> usize {
        self.holdings.len()
    }

    /// The highest number held.
    #[must_use]
    pub fn highest(&self) -> Option<u32> {
        self.holdings.iter().map(|holding| holding.fd).max()
    }

    /// Closes the descriptor that was held last, but never a standard stream.
    pub fn release_last(&mut self) -> bool {
        let released = self.kept.pop().is_some();
        if released {
            self.holdings.pop();
        }
        released
    }

    /// The line as a value: `pid`, `holdings`, `refused` and the additions of
    /// [`VictimReport::with`].
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut line = self.extra.clone();
        line.insert("pid".to_owned(), std::process::id().into());
        line.insert("holdings".to_owned(), json!(self.holdings));
        line.insert("refused".to_owned(), json!(self.refused));
        Value::Object(line)
    }

    /// Prints the line.
    pub fn announce(&self) -> io::Result<()> {
        Self::say(&self.to_json())
    }

    /// Prints any value as one line.
    pub fn say(value: &Value) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{value}")?;
        stdout.flush()
    }

    /// Prints the line and waits for the end of standard input.
    pub fn announce_and_wait(&self) -> io::Result<()> {
        self.announce()?;
        while next_line()?.is_some() {}
        Ok(())
    }
}

/// The next line of standard input without its line break; `None` at the end.
pub fn next_line() -> io::Result<Option<String>> {
    let mut line = String::new();
    let length = io::stdin().lock().read_line(&mut line)?;
    Ok((length > 0).then(|| line.trim_end().to_owned()))
}

/// The number of a descriptor.
#[must_use]
pub fn number(fd: impl AsFd) -> u32 {
    fd.as_fd().as_raw_fd().unsigned_abs()
}

/// A path as in the contract: a string, or `{"bytes": base64}` if it is not UTF-8.
#[must_use]
pub fn text(path: &Path) -> Value {
    path.to_str().map_or_else(
        || json!({"bytes": base64(path.as_os_str().as_bytes())}),
        Value::from,
    )
}

fn stream(fd: u32, what: &str, stream: impl AsFd) -> io::Result<VictimHolding> {
    let mut holding = VictimHolding {
        fd,
        what: what.to_owned(),
        cloexec: Some(false),
        ..VictimHolding::default()
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&stream)?.st_mode);
    let link = fs::read_link(format!("/proc/self/fd/{fd}"))?;
    if kind == FileType::Fifo && link.as_os_str().as_bytes().starts_with(b"pipe:") {
        holding.class = Some("pipe".to_owned());
        holding.mode = Some(mode(stream)?.to_owned());
        holding.with("end", if fd == 0 { "read" } else { "write" });
    }
    Ok(holding)
}

fn mode(fd: impl AsFd) -> io::Result<&'static str> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(match flags & OFlags::RWMODE {
        _ if flags.contains(OFlags::PATH) => "path",
        OFlags::RDONLY => "r",
        OFlags::WRONLY => "w",
        _ => "rw",
    })
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().enumerate().fold(0_u32, |group, (i, byte)| {
            group | u32::from(*byte) << (16 - 8 * i)
        });
        for i in 0..4 {
            let sextet = (group >> (18 - 6 * i)) & 63;
            encoded.push(if i > chunk.len() {
                '='
            } else {
                char::from(ALPHABET[sextet as usize])
            });
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_agrees_with_the_vectors_of_the_standard() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in cases {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
        assert_eq!(base64(b"/tmp/\xff\xfe.log"), "L3RtcC///i5sb2c=");
    }
}
