//! Scripts that only start an installed program: `uvicorn`, `pytest`, `python -m`. They belong to
//! the package, and every line of the program is below theirs.

use crate::origin::{Frame, Language};

/// Where the system's and the user's console scripts are.
const PREFIXES: &[&str] = &["", "/usr", "/usr/local"];
/// File names that run an archive or a package.
const ARCHIVES: &[&str] = &[".pex/__main__.py", ".pyz/__main__.py"];

/// Whether a frame of this stack is a launcher's. A console script is recognised by what it starts:
/// it is in the directory `bin` of an installation whose packages are on the stack too.
pub(super) fn is_launcher(frame: &Frame, stack: &[Frame]) -> bool {
    let file = frame.file.as_ref().map(|file| file.to_lossy());
    let Some(file) = file
        .as_deref()
        .filter(|_| frame.language == Language::Python)
    else {
        return false;
    };
    let is_top = frame.function.as_deref() == Some("<module>");
    if is_top && (ARCHIVES.iter().any(|end| file.ends_with(end)) || is_unpacked_pex(file)) {
        return true;
    }
    let file = plain_path(file);
    let Some((prefix, name)) = split_script(&file) else {
        return false;
    };
    let is_plain = !name.contains('.') || name.ends_with(".exe");
    let is_known = PREFIXES.contains(&prefix) || prefix.ends_with("/.local");
    let starts = |other: &Frame| is_installed_in(other, prefix) || is_of_package(other, name);
    is_top && is_plain && (is_known || stack.iter().any(starts))
}

/// Without `.` and `..`: a script's path is the one that it was called by.
fn plain_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| !matches!(*last, "" | "..")) => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// `/srv/venv/bin/uvicorn` is `uvicorn` of `/srv/venv`.
fn split_script(file: &str) -> Option<(&str, &str)> {
    let (dir, name) = file.rsplit_once('/')?;
    let ends = ["/bin", "/Scripts"];
    let prefix = ends.iter().find_map(|end| dir.strip_suffix(end))?;
    Some((prefix, name))
}

fn is_installed_in(frame: &Frame, prefix: &str) -> bool {
    let file = frame.file.as_ref().map(|file| plain_path(&file.to_lossy()));
    let rest = file.as_deref().and_then(|file| file.strip_prefix(prefix));
    rest.is_some_and(|rest| rest.starts_with("/lib/python") || rest.starts_with("/lib64/python"))
}

/// Whether a frame is of the package that has the script's name: an installation may be reached by
/// another path than its packages.
fn is_of_package(frame: &Frame, script: &str) -> bool {
    let file = frame.file.as_ref().map(|file| file.to_lossy());
    let places = ["/site-packages/", "/dist-packages/"];
    let mut rests = places
        .iter()
        .filter_map(|place| file.as_deref()?.rsplit_once(place));
    let package = script.replace('-', "_");
    rests.any(|(_, rest)| rest.split('/').next() == Some(&package))
}

/// The first file of a PEX that was unpacked: `~/.pex/unzipped_pexes/HASH/__main__.py`.
fn is_unpacked_pex(file: &str) -> bool {
    let rest = file
        .rsplit_once("/.pex/unzipped_pexes/")
        .map(|(_, rest)| rest);
    rest.and_then(|rest| rest.split_once('/'))
        .is_some_and(|(_, name)| name == "__main__.py")
}
