//! A place in source code, and whose code it is.

use std::path::Path;

/// A frame with names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The source file, as its debug information or runtime names it.
    pub file: Option<String>,
    /// The function.
    pub function: Option<String>,
    /// The line.
    pub line: Option<u32>,
    /// The program or library.
    pub module: Option<String>,
    /// The language.
    pub language: Language,
}

/// What a frame is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// C, or anything else that looks like it.
    C,
    /// C++.
    Cpp,
    /// Rust.
    Rust,
    /// Python.
    Python,
    /// Not known.
    Unknown,
}

impl Language {
    /// The contract's word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cpp => "c++",
            Self::Rust => "rust",
            Self::Python => "python",
            Self::Unknown => "unknown",
        }
    }

    /// By the ending of a source file.
    #[must_use]
    pub(crate) fn of_file(file: &str) -> Self {
        let ending = Path::new(file)
            .extension()
            .and_then(|ending| ending.to_str());
        match ending {
            Some("rs") => Self::Rust,
            Some("cc" | "cpp" | "cxx" | "C" | "hpp" | "hh" | "hxx") => Self::Cpp,
            Some("c" | "h" | "S" | "s") => Self::C,
            Some("py") => Self::Python,
            _ => Self::Unknown,
        }
    }
}

/// Where systems keep libraries that nobody wrote for this program.
const INSTALLED: &[&str] = &[
    "/lib/",
    "/lib64/",
    "/usr/lib/",
    "/usr/lib64/",
    "/usr/libexec/",
];
/// What source paths of libraries contain.
const FOREIGN_SOURCES: &[&str] = &[
    "/rustc/",
    "/rustlib/src/",
    "/.cargo/registry/",
    "/.cargo/git/",
    "/site-packages/",
    "/dist-packages/",
    "/node_modules/",
    "/usr/include/",
];

impl Place {
    /// Whether it is the application's own code: not the C library, not a runtime, not an installed library.
    #[must_use]
    pub fn is_own(&self) -> bool {
        let module = self.module.as_deref().unwrap_or("");
        let is_installed = INSTALLED.iter().any(|folder| module.starts_with(folder));
        let file = self.file.as_deref().unwrap_or("");
        let is_foreign = FOREIGN_SOURCES.iter().any(|part| file.contains(part));
        !is_installed && !is_foreign && !self.is_start()
    }

    /// The code before `main`, and what wraps calls without being one.
    fn is_start(&self) -> bool {
        let function = self.function.as_deref().unwrap_or("");
        matches!(
            function,
            "_start" | "_init" | "__libc_start_main" | "__libc_csu_init"
        ) || function.starts_with("std::")
            || function.starts_with("core::")
            || function.starts_with("alloc::")
    }

    /// Whether it says where.
    #[must_use]
    pub fn has_line(&self) -> bool {
        self.file.is_some() && self.line.is_some()
    }

    /// The place that is to blame: the innermost of the application's own code, or, when there is none, the innermost with a
    /// line, or the innermost with a name.
    #[must_use]
    pub fn culprit(stack: &[Self]) -> Option<&Self> {
        let own = stack.iter().filter(|place| place.is_own());
        own.clone()
            .find(|place| place.has_line())
            .or_else(|| own.clone().find(|place| place.function.is_some()))
            .or_else(|| stack.iter().find(|place| place.has_line()))
            .or_else(|| stack.iter().find(|place| place.function.is_some()))
    }
}
