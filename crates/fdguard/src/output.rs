//! Where results go: stdout, or a file that appears whole or not at all.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::exit;

/// Writes a result for people with `write`: with colours on a terminal, without them elsewhere.
pub fn emit_styled(
    file: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if file.is_some() {
        let mut styled = Vec::new();
        write(&mut styled)?;
        let plain = anstream::adapter::strip_bytes(&styled).into_vec();
        return emit(file, |out| Ok(out.write_all(&plain)?));
    }
    let stdout = anstream::AutoStream::auto(io::stdout().lock());
    let mut out = BufWriter::with_capacity(1 << 16, stdout);
    let written = write(&mut out).and_then(|()| Ok(out.flush()?));
    despite_early_leave(written)
}

/// A reader that has left (`| head -1`) has what it wanted: the command goes on to its own exit
/// code, however fast the reader was.
fn despite_early_leave(written: anyhow::Result<()>) -> anyhow::Result<()> {
    written.or_else(|error| match exit::is_broken_pipe(&error) {
        true => Ok(()),
        false => Err(error),
    })
}

/// Standard output without the standard library's search for line breaks, which is slow for long
/// lines.
struct PlainStdout;

impl Write for PlainStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a machine-readable result with `write`: to `file` if given, else to stdout.
pub fn emit(
    file: Option<&Path>,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    match file {
        None => {
            let mut out = BufWriter::with_capacity(1 << 16, PlainStdout);
            let written = write(&mut out).and_then(|()| Ok(out.flush()?));
            despite_early_leave(written)
        }
        Some(path) => write_file(path, write).with_context(|| path.display().to_string()),
    }
}

/// A result that arrives piece by piece: goes to stdout at once, or to a file that is renamed at
/// the end.
pub struct OutputStream {
    out: Box<dyn Write>,
    /// The temporary path, and the final path.
    file: Option<(PathBuf, PathBuf)>,
}

impl std::fmt::Debug for OutputStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl OutputStream {
    /// Opens it; fails before the command works in vain.
    pub fn open(file: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = file else {
            let out = Box::new(BufWriter::new(PlainStdout));
            return Ok(Self { out, file: None });
        };
        let is_special = path.metadata().is_ok_and(|meta| !meta.is_file());
        let part = if is_special {
            path.to_owned()
        } else {
            beside(path)
        };
        let options = std::fs::OpenOptions::new()
            .write(true)
            .create(!is_special)
            .truncate(!is_special)
            .open(&part);
        let out = options.with_context(|| path.display().to_string())?;
        Ok(Self {
            out: Box::new(BufWriter::new(out)),
            file: (!is_special).then(|| (part, path.to_owned())),
        })
    }

    /// To a file that others also write to, and that keeps its name.
    #[must_use]
    pub fn to(file: std::fs::File) -> Self {
        Self {
            out: Box::new(BufWriter::new(file)),
            file: None,
        }
    }

    /// Renames the file to its final name.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.out.flush()?;
        if let Some((part, path)) = &self.file {
            std::fs::rename(part, path).with_context(|| path.display().to_string())?;
            self.file = None;
        }
        Ok(())
    }
}

impl Write for OutputStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for OutputStream {
    fn drop(&mut self) {
        if let Some((part, _)) = &self.file {
            // A partial result is useless.
            drop(std::fs::remove_file(part));
        }
    }
}

/// Writes a temporary file and renames it, so that readers never see a partial file. Anything but a
/// regular file (`/dev/stderr`, a pipe) is written directly.
fn write_file(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if path.metadata().is_ok_and(|meta| !meta.is_file()) {
        let mut out = BufWriter::new(std::fs::OpenOptions::new().write(true).open(path)?);
        write(&mut out)?;
        out.flush()?;
        return Ok(());
    }
    let beside = beside(path);
    let written = fill(&beside, write).and_then(|()| Ok(std::fs::rename(&beside, path)?));
    if written.is_err() {
        // Report the first error, not this one.
        drop(std::fs::remove_file(&beside));
    }
    written
}

fn fill(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, std::fs::File::create(path)?);
    write(&mut out)?;
    out.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()?;
    Ok(())
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}
