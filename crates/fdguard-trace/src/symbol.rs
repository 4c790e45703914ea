//! Resolves addresses in modules to lines, from the files on disk. Modules that belong to a runtime
//! contain no line of the user's code.

use std::collections::HashMap;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use fdguard_core::Text;
use fdguard_core::origin::{Frame, Language, Stack};
use fdguard_wire::RuntimeLanguage;

use crate::go::{GoFrame, GoLines, is_go};
use crate::module_files::file_and_name;
use crate::table::RawFrame;

/// Resolves addresses, and caches the results.
#[derive(Debug, Default)]
pub struct Symbols {
    symbolizer: Symbolizer,
    known: HashMap<(PathBuf, u64), Stack>,
    /// The tables of Go programs; `None` for other modules.
    go: HashMap<PathBuf, Option<GoLines>>,
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
                RawFrame::Creator => frames.push(creator_mark()),
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

    fn look_up(&mut self, module: &Path, offset: u64) -> Stack {
        let (file, name) = file_and_name(module);
        let name = name.display().to_string();
        let lines = self.go.entry(module.to_owned());
        let lines = lines.or_insert_with(|| is_go(&file).then(|| GoLines::open(&file))?);
        let calls = lines.as_ref().map(|lines| lines.frames(offset));
        if let Some(calls) = calls.filter(|calls| !calls.is_empty()) {
            return go_places(calls, &name);
        }
        let mut elf = Elf::new(file);
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

/// Between the frames of a goroutine and those that created it, as in Go's own tracebacks.
fn creator_mark() -> Frame {
    Frame {
        file: None,
        function: Some("created by".to_owned()),
        line: None,
        module: None,
        language: Language::Go,
    }
}

/// A frame of a language with its own runtime.
fn language_frame(raw_frame: &RawFrame) -> Option<Frame> {
    let RawFrame::Language {
        tongue,
        file,
        function,
        line,
        library,
    } = raw_frame
    else {
        return None;
    };
    Some(Frame {
        file: (!file.is_empty()).then(|| Text::from(file.as_str())),
        function: Some(function.clone()),
        line: (*line > 0).then_some(*line),
        module: library.as_deref().map(Text::from),
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

/// The calls of a Go program, innermost first, without the methods that the compiler generated.
fn go_places(calls: Vec<GoFrame>, module: &str) -> Stack {
    let written = |call: &GoFrame| call.file.as_deref() != Some("<autogenerated>");
    let frame = |call: GoFrame| Frame {
        file: call.file.map(Text::from),
        function: Some(call.function),
        line: call.line,
        module: Some(Text::from(module)),
        language: Language::Go,
    };
    calls.into_iter().filter(written).map(frame).collect()
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

/// The owner of a module's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Module {
    /// The runtime of a language whose own frames are read.
    Runtime(Language),
    /// The C library and the startup code of a program.
    System,
    /// Any other code.
    Other,
}

/// Libraries of the JVM that open descriptors, and its launcher.
const JAVA: &[&str] = &[
    "java",
    "libjvm.so",
    "libjava.so",
    "libjli.so",
    "libjimage.so",
    "libnio.so",
    "libnet.so",
    "libzip.so",
];

/// The prefix of the name of a runtime's program or library; a version may follow.
const BEGINS: &[(&str, Language)] = &[
    ("python", Language::Python),
    ("libpython", Language::Python),
    ("libnode.so", Language::Node),
    ("libuv.so", Language::Node),
];

/// The prefix of the name of a library that belongs to the C library.
const SYSTEM: &[&str] = &["libc.so", "libc-2", "libpthread", "ld-linux", "ld-2"];

impl Module {
    /// Determined by the name of its file.
    pub(crate) fn from_path(path: &Path) -> Self {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Self::Other;
        };
        if name == "node" || name == "nodejs" {
            return Self::Runtime(Language::Node);
        }
        if JAVA.contains(&name) {
            return Self::Runtime(Language::Java);
        }
        if let Some((_, language)) = BEGINS.iter().find(|(begin, _)| name.starts_with(begin)) {
            return Self::Runtime(*language);
        }
        match SYSTEM.iter().any(|begin| name.starts_with(begin)) {
            true => Self::System,
            false => Self::Other,
        }
    }

    /// The language whose runtime this is.
    pub(crate) fn language(self) -> Option<Language> {
        match self {
            Self::Runtime(language) => Some(language),
            Self::System | Self::Other => None,
        }
    }
}

/// The stack of something that a runtime opened by itself: the runtime's file, and no names. `None`
/// if any other code was involved.
pub(crate) fn outline(stack: &[RawFrame]) -> Option<Stack> {
    let mut runtime = None;
    for raw_frame in stack {
        let RawFrame::Native { module, .. } = raw_frame else {
            return None;
        };
        match Module::from_path(module) {
            Module::Runtime(language) => runtime = Some((module, language)),
            Module::System => {}
            Module::Other => return None,
        }
    }
    let (module, language) = runtime?;
    Some(vec![Frame {
        file: None,
        function: None,
        line: None,
        module: Some(Text::from(file_and_name(module).1.display().to_string())),
        language,
    }])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fdguard_core::origin::Language;

    use super::{GoFrame, Module, go_places, outline};
    use crate::table::RawFrame;

    #[test]
    fn methods_that_the_compiler_generated_are_left_out() {
        let call = |function: &str, file: &str| GoFrame {
            function: function.to_owned(),
            file: Some(file.to_owned()),
            line: Some(7),
        };
        let calls = vec![
            call("main.plain.show", "/srv/main.go"),
            call("main.(*plain).show", "<autogenerated>"),
        ];
        let stack = go_places(calls, "/srv/app");
        assert_eq!(stack.len(), 1);
        assert_eq!(stack[0].function.as_deref(), Some("main.plain.show"));
        assert_eq!((stack[0].language, stack[0].line), (Language::Go, Some(7)));
    }

    fn native(module: &str) -> RawFrame {
        RawFrame::Native {
            module: module.into(),
            offset: 0x1000,
        }
    }

    #[test]
    fn modules_are_known_by_their_names() {
        for (path, module) in [
            ("/usr/bin/node", Module::Runtime(Language::Node)),
            ("/usr/lib/libnode.so.108", Module::Runtime(Language::Node)),
            ("/usr/bin/python3.11", Module::Runtime(Language::Python)),
            (
                "/opt/libpython3.12.so.1.0",
                Module::Runtime(Language::Python),
            ),
            ("/jvm/lib/server/libjvm.so", Module::Runtime(Language::Java)),
            ("/lib/x86_64-linux-gnu/libc.so.6", Module::System),
            ("/lib64/ld-linux-x86-64.so.2", Module::System),
            ("/srv/nodeserver", Module::Other),
            ("/srv/javac-tool", Module::Other),
            ("/usr/lib/libcurl.so.4", Module::Other),
            ("/", Module::Other),
        ] {
            assert_eq!(Module::from_path(Path::new(path)), module, "{path}");
        }
    }

    #[test]
    fn only_what_the_runtime_opened_alone_has_an_outline() {
        let libc = native("/lib/libc.so.6");
        let node = native("/usr/bin/node");
        let addon = native("/srv/node_modules/x/build/x.node");
        let frames = outline(&[libc.clone(), node.clone(), libc.clone()]).unwrap();
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0].language, Language::Node);
        assert_eq!(frames[0].function, None);
        assert_eq!(outline(&[libc.clone(), addon, node.clone()]), None);
        assert_eq!(outline(&[libc]), None);
        assert_eq!(outline(&[RawFrame::Unknown(4096), node]), None);
        assert_eq!(outline(&[]), None);
    }
}
