//! Which dependencies a line went through: `pexpect → ptyprocess → pty`.
//!
//! People do not look for their leak in a dependency of a dependency. The packages between the
//! application's line and the call that opened are derived from the paths of their files.

use crate::blame::{culprit, go};
use crate::origin::{Frame, Language};

/// Runtimes and the C library: every program goes through them.
const GROUND: &[&str] = &[
    "libc",
    "ld-linux-x86-64",
    "libpthread",
    "libpython",
    "libjvm",
    "libjava",
    "libnio",
    "libnet",
    "libnode",
    "libstdc++",
    "libgcc_s",
    "linux-vdso",
];

/// The packages between the culprit and the call that opened, the application's direct dependency
/// first.
#[must_use]
pub fn through(stack: &[Frame]) -> Vec<String> {
    let Some(own) = culprit(stack).and_then(|found| stack.iter().position(|frame| frame == found))
    else {
        return Vec::new();
    };
    let inner = stack.get(..own).unwrap_or_default();
    let mut packages: Vec<String> = inner.iter().rev().filter_map(package).collect();
    packages.dedup();
    packages
}

/// The package of a frame; absent where the frame does not reveal it.
fn package(frame: &Frame) -> Option<String> {
    let file = frame.file.as_ref().map(|file| file.to_lossy());
    let file = file.as_deref().unwrap_or_default();
    match frame.language {
        Language::Python => python(file),
        Language::Node => node(file),
        Language::Java => java(frame.function.as_deref()?),
        Language::Rust => rust(file),
        Language::Go => go::dependency(frame.function.as_deref()?, Some(file)),
        _ => native(frame),
    }
}

fn python(file: &str) -> Option<String> {
    let installed = ["/site-packages/", "/dist-packages/"];
    let rest = installed.iter().find_map(|dir| file.rsplit_once(dir));
    let rest = match rest {
        Some((_, rest)) => rest,
        None => file.rsplit_once("/lib/python")?.1.split_once('/')?.1,
    };
    let name = rest.split('/').next()?;
    Some(name.strip_suffix(".py").unwrap_or(name).to_owned())
}

/// With its scope, if it has one.
fn node(file: &str) -> Option<String> {
    if let Some((_, rest)) = file.rsplit_once("/node_modules/") {
        let mut parts = rest.split('/');
        let first = parts.next()?;
        let second = parts.next().filter(|_| first.starts_with('@'));
        return Some(second.map_or(first.to_owned(), |second| format!("{first}/{second}")));
    }
    let is_public = file.starts_with("node:") && !file.starts_with("node:internal");
    is_public.then(|| file.to_owned())
}

/// `java.nio.file.Files.lines` is of `java.nio.file`.
fn java(function: &str) -> Option<String> {
    let is_package = |part: &&str| part.starts_with(|first: char| first.is_ascii_lowercase());
    let parts: Vec<&str> = function.split('.').take_while(is_package).collect();
    (parts.len() > 1 && parts.len() < function.split('.').count()).then(|| parts.join("."))
}

/// From the directory name in the registry, without the version.
fn rust(file: &str) -> Option<String> {
    if file.contains("/rustc/") || file.contains("/rustlib/") {
        return Some("std".to_owned());
    }
    let (_, rest) = file.rsplit_once("/registry/src/")?;
    let dir = rest.split('/').nth(1)?;
    let name = dir.rsplit_once('-').map_or(dir, |(name, _)| name);
    Some(name.to_owned())
}

/// A shared library of some other project.
fn native(frame: &Frame) -> Option<String> {
    let module = frame.module.as_ref()?.to_lossy();
    let name = module.rsplit('/').next()?;
    let (name, _) = name.split_once(".so")?;
    let is_ground = GROUND
        .iter()
        .any(|one| name == *one || name.starts_with("libpython"));
    // An interpreter's extension: its own frames follow and are more informative.
    let is_extension = module.contains("/lib-dynload/") || name.contains(".cpython-");
    (!is_ground && !is_extension).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::through;
    use crate::origin::{Frame, Language};

    fn frame(language: Language, file: &str, function: &str, module: &str) -> Frame {
        let text = |text: &str| (!text.is_empty()).then(|| text.into());
        Frame {
            file: text(file),
            function: (!function.is_empty()).then(|| function.to_owned()),
            line: Some(1),
            module: text(module),
            language,
        }
    }

    #[test]
    fn r20_python_goes_through_the_package_that_it_asked_and_those_behind() {
        let python = |file| frame(Language::Python, file, "f", "");
        let stack = [
            frame(
                Language::C,
                "./Modules/posixmodule.c",
                "os_openpty",
                "/usr/lib/libpython3.11.so.1.0",
            ),
            python("/usr/lib/python3.11/pty.py"),
            python("/srv/venv/lib/python3.11/site-packages/ptyprocess/ptyprocess.py"),
            python("/srv/venv/lib/python3.11/site-packages/pexpect/pty_spawn.py"),
            python("/srv/venv/lib/python3.11/site-packages/pexpect/spawn.py"),
            python("/srv/agent.py"),
            python("/usr/lib/python3.11/threading.py"),
        ];
        assert_eq!(through(&stack), ["pexpect", "ptyprocess", "pty"]);
    }

    #[test]
    fn r20_other_languages_have_their_own_dirs() {
        let node = [
            frame(Language::Node, "node:internal/fs", "open", ""),
            frame(Language::Node, "node:fs", "openSync", ""),
            frame(
                Language::Node,
                "/srv/node_modules/@scope/logger/lib/a.js",
                "log",
                "",
            ),
            frame(Language::Node, "/srv/index.js", "main", ""),
        ];
        assert_eq!(through(&node), ["@scope/logger", "node:fs"]);
        let java = [
            frame(
                Language::Java,
                "Files.java",
                "java.nio.file.Files.lines",
                "",
            ),
            frame(Language::Java, "Main.java", "Main.read", ""),
        ];
        assert_eq!(through(&java), ["java.nio.file"]);
    }

    #[test]
    fn r20_compiled_languages_have_their_own_dirs() {
        let rust = [
            frame(
                Language::Rust,
                "/rustc/abc/library/std/src/fs.rs",
                "std::fs::File::open",
                "/srv/app",
            ),
            frame(
                Language::Rust,
                "/home/me/.cargo/registry/src/index/tempfile-3.10.1/src/lib.rs",
                "tempfile::new",
                "/srv/app",
            ),
            frame(Language::Rust, "src/main.rs", "app::main", "/srv/app"),
        ];
        assert_eq!(through(&rust), ["tempfile", "std"]);
        let go = [
            frame(
                Language::Go,
                "syscall/zsyscall.go",
                "syscall.socket",
                "/srv/app",
            ),
            frame(Language::Go, "net/dial.go", "net.Dial", "/srv/app"),
            frame(
                Language::Go,
                "net/http/client.go",
                "net/http.Get",
                "/srv/app",
            ),
            frame(
                Language::Go,
                "x.org/y@v1.0.0/z.go",
                "x.org/y.Get",
                "/srv/app",
            ),
            frame(Language::Go, "/srv/main.go", "main.main", "/srv/app"),
        ];
        assert_eq!(through(&go), ["x.org/y", "net/http", "net"]);
        let c = [
            frame(Language::C, "", "open64", "/lib/x86_64-linux-gnu/libc.so.6"),
            frame(
                Language::Native,
                "",
                "curl_easy_perform",
                "/usr/lib/libcurl.so.4",
            ),
            frame(Language::C, "main.c", "main", "/srv/app"),
        ];
        assert_eq!(through(&c), ["libcurl"]);
    }

    #[test]
    fn r20_what_was_opened_directly_went_through_nothing() {
        let own = [frame(Language::C, "main.c", "main", "/srv/app")];
        assert_eq!(through(&own), [""; 0]);
        assert_eq!(through(&[]), [""; 0]);
    }
}
