//! The functions and lines of a Go program's addresses, with the calls that were inlined.

use std::fs::File;
use std::path::Path;

use super::image::{ByteSource, ProgramImage};
use super::module::{self, Format};
use super::tables::{Function, Tables, u32_at};
use super::version::{self, GoVersion};

/// A call in a Go program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoFrame {
    /// The function with its package: `net/http.(*Client).Get`.
    pub function: String,
    /// The file as the compiler recorded it; `None` if the place of an inlined call is not known.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
}

/// No function has more calls inlined into each other.
const DEEPEST: usize = 200;

/// The table of one program.
#[derive(Debug)]
pub struct GoLines {
    image: ProgramImage,
    tables: Tables,
    version: Option<GoVersion>,
}

impl GoLines {
    /// Reads the table of a program; `None` if it is not a Go program or not one that is known.
    #[must_use]
    pub fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let headers = object::ReadCache::new(file.try_clone().ok()?);
        Self::read(ProgramImage::parse(&headers, ByteSource::File(file))?)
    }

    /// The same for a program in memory.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let source = ByteSource::Memory(bytes.to_vec());
        Self::read(ProgramImage::parse(bytes, source)?)
    }

    fn read(image: ProgramImage) -> Option<Self> {
        let version = version::read(&image);
        let module = module::find(&image, version)?;
        Some(Self {
            tables: Tables::read(&image, module)?,
            image,
            version,
        })
    }

    /// The calls at a link-time address, innermost first: what was inlined, then the function.
    /// Empty if no Go function has the address.
    #[must_use]
    pub fn frames(&self, address: u64) -> Vec<GoFrame> {
        self.calls(address).unwrap_or_default()
    }

    /// The link-time address of a function.
    #[must_use]
    pub fn entry(&self, function: &str) -> Option<u64> {
        self.tables.named(function).map(|found| found.entry)
    }

    /// The version of Go that built it: 1.24 is `(1, 24)`.
    #[must_use]
    pub fn version(&self) -> Option<(u32, u32)> {
        self.version
    }

    fn calls(&self, address: u64) -> Option<Vec<GoFrame>> {
        let tables = &self.tables;
        let function = tables.function(address)?;
        let outer = name(tables.name(function)?);
        let mut frames = Vec::new();
        let mut address = address;
        while let Some(call) = tables.inlined_call(function, address) {
            let inlined = self.inlined(function, call);
            let Some((inner, caller)) = inlined.filter(|_| frames.len() < DEEPEST) else {
                // The line is of the inlined function, whose name is not known.
                frames.push(frame(outer, None));
                return Some(frames);
            };
            frames.push(frame(inner, tables.place(function, address)));
            address = caller;
        }
        frames.push(frame(outer, tables.place(function, address)));
        Some(frames)
    }

    /// The name of an inlined function, and the address of an instruction at its call.
    fn inlined(&self, function: Function, call: u32) -> Option<(String, u64)> {
        let (size, name_at, caller) = match self.tables.module.format {
            Format::Go116 | Format::Go118 => (20, 12, 16),
            Format::Go120 => (16, 4, 8),
        };
        let tree = self.tables.tree(&self.image, function)?;
        let place = tree.checked_add(u64::from(call).checked_mul(size)?)?;
        let record = self.image.bytes(place, usize::try_from(size).ok()?)?;
        let inlined = name(self.tables.name_at(u32_at(&record, name_at)?)?);
        let distance = u64::from(u32_at(&record, caller)?);
        Some((inlined, function.entry.checked_add(distance)?))
    }
}

fn frame(function: String, place: Option<(&[u8], u32)>) -> GoFrame {
    GoFrame {
        function,
        file: place.map(|(file, _)| text(file)),
        line: place.map(|(_, line)| line).filter(|line| *line > 0),
    }
}

/// The name as the runtime prints it: type arguments are left out.
fn name(bytes: &[u8]) -> String {
    let name = text(bytes);
    match (name.find('['), name.rfind(']')) {
        (Some(first), Some(last)) if first < last => {
            format!("{}[...]{}", &name[..first], &name[last + 1..])
        }
        _ => name,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
