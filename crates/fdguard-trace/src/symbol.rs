//! Addresses in modules to lines, from the files on disk.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

use crate::place::{Language, Place};
use crate::table::Spot;

/// Names addresses, and remembers what it named.
#[derive(Debug, Default)]
pub struct Symbols {
    symbolizer: Symbolizer,
    known: HashMap<(PathBuf, u64), Vec<Place>>,
}

impl Symbols {
    /// Nothing named yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A stack with names, innermost first; a frame may stand for several inlined ones.
    pub(crate) fn name(&mut self, stack: &[Spot]) -> Vec<Place> {
        let mut places = Vec::new();
        for spot in stack {
            match spot {
                Spot::Native { module, offset } => places.extend(self.native(module, *offset)),
                Spot::Unknown(address) => places.push(Place {
                    file: None,
                    function: Some(format!("{address:#x}")),
                    line: None,
                    module: None,
                    language: Language::Unknown,
                }),
                Spot::Language {
                    file,
                    function,
                    line,
                } => places.push(Place {
                    language: Language::of_file(file),
                    file: Some(file.clone()),
                    function: Some(function.clone()),
                    line: (*line > 0).then_some(*line),
                    module: None,
                }),
            }
        }
        places
    }

    fn native(&mut self, module: &Path, offset: u64) -> Vec<Place> {
        let key = (module.to_owned(), offset);
        if let Some(places) = self.known.get(&key) {
            return places.clone();
        }
        let places = self.look_up(module, offset);
        self.known.insert(key, places.clone());
        places
    }

    fn look_up(&self, module: &Path, offset: u64) -> Vec<Place> {
        let name = module.display().to_string();
        let source = Source::Elf(Elf::new(module));
        let found = self
            .symbolizer
            .symbolize_single(&source, Input::VirtOffset(offset));
        match found {
            Ok(Symbolized::Sym(symbol)) => places(&symbol, &name),
            _ => vec![Place {
                file: None,
                function: None,
                line: None,
                module: Some(name),
                language: Language::Unknown,
            }],
        }
    }
}

/// A symbol and what was inlined into it, innermost first.
fn places(symbol: &Sym<'_>, module: &str) -> Vec<Place> {
    let place = |name: &str, code: Option<&CodeInfo<'_>>| {
        let file = code.map(|code| code.to_path().display().to_string());
        let language = file.as_deref().map_or(Language::Unknown, Language::of_file);
        Place {
            file,
            function: Some(name.to_owned()),
            line: code.and_then(|code| code.line),
            module: Some(module.to_owned()),
            language,
        }
    };
    let inlined = symbol.inlined.iter().rev();
    let mut places: Vec<Place> = inlined
        .map(|one| place(&one.name, one.code_info.as_ref()))
        .collect();
    places.push(place(&symbol.name, symbol.code_info.as_deref()));
    places
}
