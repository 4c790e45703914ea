//! Whether the program's authors had a hand in an opening, or only its runtime.

use crate::blame;
use crate::origin::{Culprit, Frame, Language};

/// Where programs are that came with the system: what they hold at their end is not for the user to repair.
const INSTALLED: &[&str] = &[
    "/usr/bin/",
    "/usr/sbin/",
    "/bin/",
    "/sbin/",
    "/usr/local/bin/",
    "/usr/local/sbin/",
    "/snap/",
];

/// Java's loader of classes opens archives for whoever uses a class first, and keeps them.
const LOADERS: &[&str] = &["jdk.internal.loader.", "jdk.internal.module."];

/// Whether the program's own code asked for what this stack opened. A runtime that loads code for itself
/// did so on its own account, whoever stands further out.
#[must_use]
pub fn is_programs(stack: &[Frame]) -> bool {
    for frame in stack {
        if is_loader(frame) {
            return false;
        }
        if is_written_here(frame) {
            return true;
        }
    }
    false
}

/// The line to blame: the innermost of the program's own, and of a program without names its file.
#[must_use]
pub fn culprit(stack: &[Frame]) -> Option<Culprit> {
    let blamed = blame::culprit(stack)?;
    if blame::is_own(blamed) {
        return Some(blamed.into());
    }
    let nameless = stack.iter().find(|frame| is_written_here(frame));
    let blamed = nameless.map(|frame| Culprit {
        file: frame.module.clone(),
        ..Culprit::from(frame)
    });
    blamed.or_else(|| Culprit::of(stack))
}

fn is_loader(frame: &Frame) -> bool {
    let function = frame.function.as_deref().unwrap_or_default();
    frame.language == Language::Java && LOADERS.iter().any(|name| function.starts_with(name))
}

/// With a source file the file tells; machine code without one is the program's where its module is not installed.
fn is_written_here(frame: &Frame) -> bool {
    let is_native = matches!(
        frame.language,
        Language::C | Language::Cpp | Language::Rust | Language::Native
    );
    if !is_native || frame.file.is_some() {
        return blame::is_own(frame);
    }
    let Some(module) = &frame.module else {
        // Code that was made at run time.
        return false;
    };
    let module = module.to_lossy();
    if INSTALLED.iter().any(|folder| module.starts_with(folder)) {
        return false;
    }
    // A program without symbols is a program all the same.
    blame::is_own(&Frame {
        function: Some(frame.function.clone().unwrap_or_else(|| "?".to_owned())),
        ..frame.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::{culprit, is_programs};
    use crate::origin::{Frame, Language};

    fn native(module: &str, function: Option<&str>, file: Option<&str>) -> Frame {
        Frame {
            file: file.map(Into::into),
            function: function.map(ToOwned::to_owned),
            line: file.map(|_| 7),
            module: (!module.is_empty()).then(|| module.into()),
            language: Language::Native,
        }
    }

    fn java(function: &str) -> Frame {
        Frame {
            language: Language::Java,
            ..native("", Some(function), Some("X.java"))
        }
    }

    #[test]
    fn a_program_of_ones_own_is_known_with_and_without_symbols() {
        let libc = native("/usr/lib/x86_64-linux-gnu/libc.so.6", Some("fopen"), None);
        let bare = native("/home/me/build/server", None, None);
        let full = native("/home/me/build/server", Some("main"), Some("/src/main.c"));
        assert!(is_programs(&[libc.clone(), bare]));
        assert!(is_programs(&[libc.clone(), full]));
        assert!(!is_programs(&[libc]));
        assert!(!is_programs(&[]));
    }

    #[test]
    fn a_program_without_names_is_blamed_and_not_the_library_that_called_it() {
        let bare = native("/home/me/build/server", None, None);
        let start = native(
            "/lib/libc.so.6",
            Some("__libc_start_main"),
            Some("./csu/x.c"),
        );
        let blamed = culprit(&[bare, start.clone()]).unwrap();
        assert_eq!(blamed.file, Some("/home/me/build/server".into()));
        let line = native("/home/me/build/server", Some("main"), Some("/src/main.c"));
        assert_eq!(culprit(&[line, start]).unwrap().line, Some(7));
    }

    #[test]
    fn interpreters_of_the_system_and_generated_code_are_not_the_users() {
        assert!(!is_programs(&[native(
            "/usr/bin/bash",
            Some("open_script"),
            None
        )]));
        assert!(!is_programs(&[native("/usr/bin/dash", None, None)]));
        assert!(!is_programs(&[native("", Some("0x7f0012"), None)]));
        // With its source at hand it is somebody's to repair.
        let local = native("/usr/local/bin/mine", Some("main"), Some("/src/mine.c"));
        assert!(is_programs(&[local]));
    }

    #[test]
    fn what_the_class_loader_opens_on_the_way_is_javas_own() {
        let loader = java("jdk.internal.loader.URLClassPath$JarLoader.ensureOpen");
        assert!(!is_programs(&[loader, java("Main.main")]));
        assert!(is_programs(&[
            java("java.nio.file.Files.lines"),
            java("Main.main")
        ]));
    }
}
