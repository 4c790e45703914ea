//! Interpreters whose programs are not read: their C functions are not lines of the program.

use crate::origin::Frame;

/// The beginning of a program's or library's name, and the language. What follows may be a version.
const NAMES: &[(&str, &str)] = &[
    ("ruby", "Ruby"),
    ("libruby", "Ruby"),
    ("perl", "Perl"),
    ("libperl", "Perl"),
    ("php", "PHP"),
    ("php-fpm", "PHP"),
    ("php-cgi", "PHP"),
    ("libphp", "PHP"),
    ("lua", "Lua"),
    ("luajit", "Lua"),
    ("liblua", "Lua"),
    ("libluajit", "Lua"),
    ("tclsh", "Tcl"),
    ("wish", "Tcl"),
    ("libtcl", "Tcl"),
    ("Rscript", "R"),
    ("libR", "R"),
    ("guile", "Guile"),
    ("libguile", "Guile"),
    ("beam", "Erlang"),
];

/// The language that a program of this file name interprets and whose lines are not read: `Ruby`
/// for `ruby3.1` and `libruby-3.1.so.3.1`.
#[must_use]
pub fn language_of_program(name: &str) -> Option<&'static str> {
    let is_version = |rest: &str| {
        let rest = rest.strip_prefix('-').unwrap_or(rest);
        let end = rest.find(".so").unwrap_or(rest.len());
        let (version, _) = rest.split_at(end);
        let version = version.strip_suffix(".smp").unwrap_or(version);
        version
            .chars()
            .all(|c| c.is_ascii_digit() || matches!(c, '.' | '-' | '_'))
    };
    let found = NAMES.iter().find(|(begin, _)| {
        name.strip_prefix(begin)
            .is_some_and(|rest| rest.is_empty() || is_version(rest))
    });
    found.map(|(_, language)| *language)
}

/// The language of the interpreter that is on a stack, where its lines are not read.
#[must_use]
pub fn unread_language(stack: &[Frame]) -> Option<&'static str> {
    stack.iter().find_map(|frame| {
        let module = frame.module.as_ref()?.to_lossy();
        language_of_program(module.rsplit('/').next()?)
    })
}

#[cfg(test)]
mod tests {
    use super::language_of_program;

    #[test]
    fn interpreters_are_known_by_name_with_and_without_a_version() {
        for (name, language) in [
            ("ruby", Some("Ruby")),
            ("ruby3.1", Some("Ruby")),
            ("libruby-3.1.so.3.1", Some("Ruby")),
            ("perl", Some("Perl")),
            ("perl5.36.0", Some("Perl")),
            ("libperl.so.5.36", Some("Perl")),
            ("php8.2", Some("PHP")),
            ("php-fpm8.2", Some("PHP")),
            ("lua5.4", Some("Lua")),
            ("liblua5.4.so.0", Some("Lua")),
            ("luajit-2.1.0", Some("Lua")),
            ("tclsh8.6", Some("Tcl")),
            ("libR.so", Some("R")),
            ("guile-3.0", Some("Guile")),
            ("beam.smp", Some("Erlang")),
            ("rubyist", None),
            ("perlbench", None),
            ("libRmath.so", None),
            ("beamer", None),
            ("python3", None),
            ("", None),
        ] {
            assert_eq!(language_of_program(name), language, "{name}");
        }
    }
}
