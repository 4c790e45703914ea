//! Whose code a Go function is, by its package and its file.
//!
//! A function carries the path of its package: `net/http.(*Client).Get`. The file is a path on the
//! machine that compiled it; with `-trimpath` it begins with the path of the package or, in a
//! module that was downloaded, with the module and its version.

use crate::origin::Frame;

/// The first part of the paths of the standard library's packages.
const STANDARD: &[&str] = &[
    "archive",
    "bufio",
    "builtin",
    "bytes",
    "cmd",
    "cmp",
    "compress",
    "container",
    "context",
    "crypto",
    "database",
    "debug",
    "embed",
    "encoding",
    "errors",
    "expvar",
    "flag",
    "fmt",
    "go",
    "hash",
    "html",
    "image",
    "index",
    "internal",
    "io",
    "iter",
    "log",
    "maps",
    "math",
    "mime",
    "net",
    "os",
    "path",
    "plugin",
    "reflect",
    "regexp",
    "runtime",
    "simd",
    "slices",
    "sort",
    "strconv",
    "strings",
    "structs",
    "sync",
    "syscall",
    "testing",
    "text",
    "time",
    "unicode",
    "unique",
    "unsafe",
    "vendor",
    "weak",
];

/// Whether it is the application's own code: the program itself and what was compiled with it from
/// its own module.
pub(super) fn is_own(function: &str, file: Option<&str>) -> bool {
    match package(function) {
        "main" => true,
        "" | "_cgo_gotypes" => false,
        package => !is_standard(package, file) && !is_downloaded(function, file),
    }
}

/// Whether it is a package of others, and not of the standard library.
pub(super) fn is_library(function: &str, file: Option<&str>) -> bool {
    let package = package(function);
    package != "main" && !is_standard(package, file) && is_downloaded(function, file)
}

/// Whether it is what every open goes through: the runtime and the system calls.
pub(super) fn is_ground(function: &str, file: Option<&str>) -> bool {
    let package = package(function);
    let first = package.split('/').next().unwrap_or_default();
    let is_inner = matches!(first, "runtime" | "syscall" | "internal" | "");
    is_inner && is_standard(package, file)
}

/// Whether the runtime sets up its poller here.
pub(super) fn is_poller(frame: &Frame) -> bool {
    let function = frame.function.as_deref().unwrap_or_default();
    matches!(
        function,
        "internal/poll.runtime_pollServerInit" | "runtime.netpollGenericInit"
    )
}

/// The path of the package: `gopkg.in/yaml%2ev3.(*Decoder).Decode` is of `gopkg.in/yaml%2ev3`.
pub(crate) fn package(function: &str) -> &str {
    // Functions that the compiler generates for types.
    if ["type:", "type..", "go:"]
        .iter()
        .any(|begin| function.starts_with(begin))
    {
        return "";
    }
    let plain = function.split('[').next().unwrap_or_default();
    let last = plain.rfind('/').map_or(0, |slash| slash + 1);
    let dot = plain[last..].find('.').map(|dot| last + dot);
    // Functions of the linker and of the C library have no package.
    dot.map_or("", |dot| &plain[..dot])
}

/// A module of the user may have the same name as a standard package: its files are elsewhere.
pub(crate) fn is_standard(package: &str, file: Option<&str>) -> bool {
    let first = package.split('/').next().unwrap_or_default();
    if !STANDARD.contains(&first) && !first.is_empty() {
        return false;
    }
    // Generated functions have no file, and no directory with `-trimpath`.
    let Some(path) = file.filter(|file| file.starts_with('/')) else {
        return true;
    };
    // Functions of one package may be written in another: `internal/poll.runtime_pollOpen` is in
    // the runtime's files.
    let dirs = [package, "runtime", "internal", "sync"];
    first.is_empty()
        || dirs
            .iter()
            .any(|dir| path.contains(&format!("/src/{dir}/")))
}

/// The module cache, a vendored copy, or with `-trimpath` a module with its version.
fn is_downloaded(function: &str, file: Option<&str>) -> bool {
    let is_vendored = |path: &str| path.contains("/vendor/") || path.starts_with("vendor/");
    let is_cached = |path: &str| path.contains("/pkg/mod/") || path.contains("@v");
    is_vendored(package(function)) || file.is_some_and(|file| is_vendored(file) || is_cached(file))
}

/// The module or package that a function is of, to be named: `github.com/a/b`, `net/http`. `None`
/// for the runtime.
pub(crate) fn dependency(function: &str, file: Option<&str>) -> Option<String> {
    if is_ground(function, file) {
        return None;
    }
    let package = package(function);
    if package.is_empty() || is_own(function, file) {
        return None;
    }
    let package = package
        .rsplit_once("/vendor/")
        .map_or(package, |(_, rest)| rest);
    let package = package.strip_prefix("vendor/").unwrap_or(package);
    let module = file.and_then(|file| module(file, package));
    Some(module.unwrap_or(package).replace("%2e", "."))
}

/// The part of a package's path that is its module, by the version in the path of the file.
fn module<'p>(file: &str, package: &'p str) -> Option<&'p str> {
    let (before, after) = file.split_once("@v")?;
    let inside = after
        .split_once('/')?
        .1
        .rsplit_once('/')
        .map_or("", |(dir, _)| dir);
    let module = package.strip_suffix(inside)?.trim_end_matches('/');
    // Capitals are escaped in the cache, so only the end of the path can be compared.
    let last = module.rsplit('/').next()?.replace("%2e", ".");
    before
        .to_lowercase()
        .replace('!', "")
        .ends_with(&last.to_lowercase())
        .then_some(module)
}

#[cfg(test)]
mod tests {
    use super::{dependency, is_own, package};

    #[test]
    fn the_package_is_what_comes_before_the_function() {
        for (function, expected) in [
            ("main.main", "main"),
            ("main.(*T).Run.func1", "main"),
            ("net/http.(*Client).Get", "net/http"),
            ("gopkg.in/yaml%2ev3.(*Decoder).Decode", "gopkg.in/yaml%2ev3"),
            ("slices.SortFunc[...]", "slices"),
            (
                "example.com/a.F[go.shape.struct { example.com/b.T }]",
                "example.com/a",
            ),
            ("_cgo_abc_Cfunc_open", ""),
        ] {
            assert_eq!(package(function), expected, "{function}");
        }
    }

    #[test]
    fn r19_own_go_code_is_recognised_however_it_was_built() {
        for (function, file, is) in [
            ("main.main", "/srv/app/main.go", true),
            ("main.main", "./main.go", true),
            ("main.main", "example.com/app@v1.2.0/main.go", true),
            (
                "main.main",
                "/root/go/pkg/mod/example.com/tool@v1.2.0/main.go",
                true,
            ),
            ("example.com/app/db.Open", "/srv/app/db/db.go", true),
            ("example.com/app/db.Open", "example.com/app/db/db.go", true),
            // A module of the user in the old place, and ones with plain names.
            (
                "github.com/ann/app/db.Open",
                "/home/ann/go/src/github.com/ann/app/db/db.go",
                true,
            ),
            ("app/db.Open", "/home/ann/go/src/app/db/db.go", true),
            ("app/db.Open", "app/db/db.go", true),
            ("log.Open", "/srv/log/open.go", true),
            ("internal.Open", "/srv/app/internal/open.go", true),
        ] {
            assert_eq!(is_own(function, Some(file)), is, "{function} in {file}");
        }
        assert!(!is_own("runtime.main", None) && is_own("main.main", None));
        assert!(!is_own("type:.eq.main.T", Some("<autogenerated>")));
    }

    #[test]
    fn r19_go_libraries_are_not_own_code_however_they_were_built() {
        for (function, file, is) in [
            (
                "github.com/a/b.Get",
                "/root/go/pkg/mod/github.com/a/b@v1.0.0/b.go",
                false,
            ),
            (
                "github.com/a/b.Get",
                "/home/ann/.cache/pkg/mod/github.com/a/b@v0.0.0-2024/b.go",
                false,
            ),
            ("github.com/a/b.Get", "github.com/a/b@v1.0.0/b.go", false),
            (
                "github.com/a/b.Get",
                "/srv/app/vendor/github.com/a/b/b.go",
                false,
            ),
            (
                "app/vendor/github.com/a/b.Get",
                "github.com/a/b/b.go",
                false,
            ),
            // The standard library.
            (
                "net/http.Get",
                "/usr/lib/go-1.19/src/net/http/client.go",
                false,
            ),
            (
                "net/http.Get",
                "/opt/hostedtoolcache/go/1.24.0/x64/src/net/http/client.go",
                false,
            ),
            ("net/http.Get", "net/http/client.go", false),
            ("os.(*File).Read", "os/file.go", false),
            (
                "internal/poll.Open",
                "/usr/local/go/src/internal/poll/fd.go",
                false,
            ),
            (
                "vendor/golang.org/x/net/x.F",
                "/usr/local/go/src/vendor/golang.org/x/net/x.go",
                false,
            ),
            ("runtime.goexit", "runtime/asm_amd64.s", false),
            (
                "internal/poll.runtime_pollServerInit",
                "/usr/lib/go-1.19/src/runtime/netpoll.go",
                false,
            ),
        ] {
            assert_eq!(is_own(function, Some(file)), is, "{function} in {file}");
        }
    }

    #[test]
    fn r20_a_dependency_is_named_by_its_module() {
        for (function, file, expected) in [
            ("net/http.Get", "net/http/client.go", Some("net/http")),
            ("syscall.Open", "syscall/zsyscall.go", None),
            ("internal/poll.Open", "internal/poll/fd.go", None),
            ("main.main", "main.go", None),
            (
                "github.com/a/b/c/d.Get",
                "/root/go/pkg/mod/github.com/a/b@v1.0.0/c/d/b.go",
                Some("github.com/a/b"),
            ),
            (
                "github.com/Azure/b/c.Get",
                "/root/go/pkg/mod/github.com/!azure/b@v1.0.0/c/b.go",
                Some("github.com/Azure/b"),
            ),
            (
                "gopkg.in/yaml%2ev3.Get",
                "gopkg.in/yaml.v3@v3.0.1/b.go",
                Some("gopkg.in/yaml.v3"),
            ),
            (
                "github.com/a/b/c.Get",
                "/srv/app/vendor/github.com/a/b/c/b.go",
                Some("github.com/a/b/c"),
            ),
        ] {
            assert_eq!(
                dependency(function, Some(file)).as_deref(),
                expected,
                "{function}"
            );
        }
    }
}
