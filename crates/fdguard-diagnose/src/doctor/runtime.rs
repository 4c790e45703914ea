//! Detects the language runtime of a program by the path of its executable.

use fdguard_core::evidence::RuntimeInfo;
use fdguard_proc::link::without_mark;

/// The executables of interpreters and virtual machines, and their names.
const RUNTIMES: &[(&str, &str)] = &[
    ("python", "Python"),
    ("pypy", "PyPy"),
    ("node", "Node.js"),
    ("nodejs", "Node.js"),
    ("deno", "Deno"),
    ("bun", "Bun"),
    ("java", "Java"),
    ("ruby", "Ruby"),
    ("php", "PHP"),
    ("perl", "Perl"),
    ("dotnet", ".NET"),
    ("beam.smp", "Erlang"),
];

/// The runtime of an executable; `None` for native programs.
pub(super) fn detect(exe: &[u8]) -> Option<RuntimeInfo> {
    let exe = std::str::from_utf8(without_mark(exe)).ok()?;
    let base = exe.rsplit('/').next()?;
    let is_version = |c: char| c.is_ascii_digit() || c == '.';
    let (stem, name) = RUNTIMES.iter().find(|(stem, _)| {
        base.strip_prefix(stem)
            .is_some_and(|rest| rest.chars().all(is_version))
    })?;
    let own = base[stem.len()..].trim_matches('.');
    let version = Some(own.to_owned())
        .filter(|own| own.contains('.'))
        .or_else(|| exe.rsplit('/').skip(1).find_map(version))
        .or_else(|| Some(own.to_owned()).filter(|own| !own.is_empty()));
    Some(RuntimeInfo {
        name: (*name).to_owned(),
        version,
    })
}

/// The version in one part of a path: `v20.1.0`, `jdk-17.0.2`, `java-17-openjdk-amd64`.
fn version(part: &str) -> Option<String> {
    let words = part.split(['-', '_', '@']);
    let mut versions = words.filter_map(|word| {
        let bare = word.strip_prefix('v').unwrap_or(word);
        let is_version = bare.starts_with(|c: char| c.is_ascii_digit())
            && bare
                .chars()
                .all(|c| c.is_ascii_digit() || c == '.' || c == '+');
        let is_named = part.contains(['j', 'v', 'o']) || bare.contains('.');
        (is_version && is_named).then(|| bare.to_owned())
    });
    versions.next()
}

#[cfg(test)]
mod tests {
    use super::detect;

    #[test]
    fn the_path_of_an_interpreter_tells_its_version() {
        for (exe, name, version) in [
            ("/usr/bin/python3.11", "Python", Some("3.11")),
            ("/usr/bin/python3", "Python", Some("3")),
            (
                "/home/ann/.nvm/versions/node/v20.1.0/bin/node",
                "Node.js",
                Some("20.1.0"),
            ),
            (
                "/usr/lib/jvm/java-17-openjdk-amd64/bin/java",
                "Java",
                Some("17"),
            ),
            ("/opt/jdk-21.0.2+13/bin/java", "Java", Some("21.0.2+13")),
            ("/usr/bin/node (deleted)", "Node.js", None),
        ] {
            let found = detect(exe.as_bytes()).unwrap();
            assert_eq!(
                (found.name.as_str(), found.version.as_deref()),
                (name, version),
                "{exe}"
            );
        }
        for other in [
            "/usr/bin/nginx",
            "/usr/bin/node-exporter",
            "",
            "/usr/sbin/javac",
        ] {
            assert_eq!(detect(other.as_bytes()), None, "{other}");
        }
    }
}
