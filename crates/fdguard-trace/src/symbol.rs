//! Resolves addresses in modules to lines, from the files on disk.

use std::collections::HashMap;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use fdguard_core::Text;
use fdguard_core::origin::{Frame, Language, Stack};
use fdguard_wire::RuntimeLanguage;

use crate::runtime::Module;
use crate::table::RawFrame;

/// Resolves addresses, and caches the results.
#[derive(Debug, Default)]
pub struct Symbols {
    symbolizer: Symbolizer,
    known: HashMap<(PathBuf, u64), Stack>,
}

impl Symbols {
    /// Nothing named yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A stack with names, innermost first; a frame may expand to several inlined ones. Frames of a
    /// language with its own runtime replace the runtime's native frames.
    pub(crate) fn name(&mut self, stack: &[RawFrame]) -> Stack {
        let languages: Stack = stack.iter().filter_map(language_frame).collect();
        // Below the runtime there is nothing but the runtime.
        let is_runtime = |raw_frame: &&RawFrame| matches!(raw_frame, RawFrame::Native { module, .. } if Module::from_path(module).language().is_some());
        let native = stack
            .iter()
            .take_while(|raw_frame| languages.is_empty() || !is_runtime(raw_frame));
        let mut frames = Vec::new();
        for raw_frame in native {
            match raw_frame {
                RawFrame::Native { module, offset } => frames.extend(self.native(module, *offset)),
                RawFrame::Unknown(address) => frames.push(Frame {
                    file: None,
                    function: Some(format!("{address:#x}")),
                    line: None,
                    module: None,
                    language: Language::Native,
                }),
                RawFrame::Language { .. } => {}
            }
        }
        frames.extend(languages);
        frames
    }

    fn native(&mut self, module: &Path, offset: u64) -> Stack {
        let key = (module.to_owned(), offset);
        if let Some(places) = self.known.get(&key) {
            return places.clone();
        }
        let places = self.look_up(module, offset);
        self.known.insert(key, places.clone());
        places
    }

    fn look_up(&self, module: &Path, offset: u64) -> Stack {
        let name = module.display().to_string();
        let mut elf = Elf::new(module);
        // Lines in these modules are of no interest to a user, and reading them takes longer than
        // most programs take to start.
        elf.debug_syms = Module::from_path(module) == Module::Other;
        let source = Source::Elf(elf);
        let found = self
            .symbolizer
            .symbolize_single(&source, Input::VirtOffset(offset));
        match found {
            Ok(Symbolized::Sym(symbol)) => places(&symbol, &name),
            _ => vec![Frame {
                file: None,
                function: None,
                line: None,
                module: Some(Text::from(name)),
                language: Language::Native,
            }],
        }
    }
}

/// A frame of a language with its own runtime.
fn language_frame(raw_frame: &RawFrame) -> Option<Frame> {
    let RawFrame::Language {
        tongue,
        file,
        function,
        line,
    } = raw_frame
    else {
        return None;
    };
    Some(Frame {
        file: (!file.is_empty()).then(|| Text::from(file.as_str())),
        function: Some(function.clone()),
        line: (*line > 0).then_some(*line),
        module: None,
        language: match tongue {
            RuntimeLanguage::Python => Language::Python,
            RuntimeLanguage::Java => Language::Java,
            RuntimeLanguage::Node => Language::Node,
        },
    })
}

/// A symbol and what was inlined into it, innermost first.
fn places(symbol: &Sym<'_>, module: &str) -> Stack {
    let frame = |name: &str, code: Option<&CodeInfo<'_>>| {
        let file = code.map(|code| code.to_path().into_owned());
        Frame {
            language: file.as_deref().map_or(Language::Native, language_of),
            file: file.map(|file| Text::from(file.into_os_string().into_vec())),
            function: Some(name.to_owned()),
            line: code.and_then(|code| code.line),
            module: Some(Text::from(module)),
        }
    };
    let inlined = symbol.inlined.iter().rev();
    let mut frames: Stack = inlined
        .map(|one| frame(&one.name, one.code_info.as_ref()))
        .collect();
    frames.push(frame(&symbol.name, symbol.code_info.as_deref()));
    frames
}

/// Determined by the extension of a source file.
fn language_of(file: &Path) -> Language {
    match file.extension().and_then(|ending| ending.to_str()) {
        Some("rs") => Language::Rust,
        Some("cc" | "cpp" | "cxx" | "C" | "hpp" | "hh" | "hxx") => Language::Cpp,
        Some("c" | "h") => Language::C,
        _ => Language::Native,
    }
}
