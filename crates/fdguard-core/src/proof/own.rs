//! Whether the program's own code took part in an open, or only its runtime: the rule of
//! [`crate::blame`], as a check applies it.

pub use crate::blame::{blamed as culprit, is_programs};

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
        // With its source available the user can fix it.
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
