//! Programs whose heap cannot be walked: interpreters that fdguard does not know, and languages
//! that keep no record.

use std::path::Path;

use fdguard_core::blame::language_of_program;
use fdguard_proc::link;
use fdguard_proc::maps::mappings;

use super::HeapRefusal;

/// Runtimes that fdguard's reports do not name otherwise, by the beginning of a file's name.
const OTHERS: [(&str, &str); 16] = [
    ("libcoreclr.so", ".NET"),
    ("libmono", ".NET"),
    ("mono", ".NET"),
    ("libpypy", "PyPy"),
    ("pypy", "PyPy"),
    ("deno", "Deno"),
    ("bun", "Bun"),
    ("libjulia", "Julia"),
    ("julia", "Julia"),
    ("libmozjs", "SpiderMonkey"),
    ("libracket", "Racket"),
    ("libj9vm", "OpenJ9"),
    ("bash", "shell scripts"),
    ("dash", "shell scripts"),
    ("zsh", "shell scripts"),
    ("sbcl", "Lisp"),
];

/// Why nothing is known of the heap of a process that is none of Python, Java, Node and Go.
pub(super) fn refusal(pid: u32) -> HeapRefusal {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let paths = mappings(&maps).map(|mapping| String::from_utf8_lossy(mapping.path).into_owned());
    // A program may use an interpreter beside what it does itself; these libraries are all it is.
    let libraries = paths.filter_map(|path| file_name(Path::new(&path)));
    let mut libraries = libraries.filter(|name| name.starts_with("lib"));
    let own = file_name(&exe).and_then(|name| runtime(&name));
    match own.or_else(|| libraries.find_map(|name| other(&name))) {
        Some(language) => HeapRefusal::new(format!("not supported for {language}"), ""),
        None => HeapRefusal {
            is_language: true,
            ..HeapRefusal::new("this language keeps no record of who holds a number", "")
        },
    }
}

fn file_name(path: &Path) -> Option<String> {
    let name = link::file_name(path.as_os_str().as_encoded_bytes());
    (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
}

/// The language whose programs this file runs.
fn runtime(name: &str) -> Option<&'static str> {
    language_of_program(name).or_else(|| other(name))
}

/// The same for what only this module names.
fn other(name: &str) -> Option<&'static str> {
    let is_version = |rest: &str| !rest.starts_with(|one: char| one.is_alphabetic());
    let found = OTHERS.iter().find(|(begin, _)| {
        let rest = name.strip_prefix(begin);
        rest.is_some_and(|rest| is_version(rest) || begin.starts_with("lib"))
    });
    found.map(|(_, language)| *language)
}

#[cfg(test)]
mod tests {
    use super::runtime;

    #[test]
    fn a_runtime_is_known_by_its_program_or_its_library() {
        for (name, expected) in [
            ("ruby3.1", Some("Ruby")),
            ("libruby-3.1.so.3.1", Some("Ruby")),
            ("libcoreclr.so", Some(".NET")),
            ("bash", Some("shell scripts")),
            ("pypy3.10", Some("PyPy")),
            ("bundle-server", None),
            ("dashboard", None),
            ("nginx", None),
        ] {
            assert_eq!(runtime(name), expected, "{name}");
        }
    }
}
