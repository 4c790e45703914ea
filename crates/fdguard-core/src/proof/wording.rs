//! How remains are told.

use super::Remains;
use crate::origin::{Culprit, Origin};

/// `main.c:23 begin`, or as much of it as is known.
#[must_use]
pub fn place(culprit: &Culprit) -> String {
    let function = culprit.function.as_deref();
    match (&culprit.file, culprit.line, function) {
        (Some(file), Some(line), _) => {
            format!("{}:{line} {}", file.base_name(), function.unwrap_or("?"))
        }
        (Some(file), None, None) => format!("{} (no debug information)", file.base_name()),
        _ => function.unwrap_or("?").to_owned(),
    }
}

pub(super) fn place_of(origin: Option<&Origin>) -> String {
    let culprit = origin.and_then(|origin| origin.culprit.as_ref());
    culprit.map_or_else(|| "an unknown line".to_owned(), place)
}

/// `regular /srv/a.log`, or the call that opened it where nobody saw more.
#[must_use]
pub fn what(remains: &Remains) -> String {
    match (&remains.class, &remains.target) {
        (Some(class), Some(target)) => format!("{class} {}", target.to_lossy()),
        (Some(class), None) => class.to_string(),
        (None, Some(target)) => target.to_lossy().into_owned(),
        (None, None) => format!("opened by {}", remains.call),
    }
}

/// What to do about remains that fail a check.
#[must_use]
pub fn next_step(remains: &Remains) -> String {
    let culprit = remains.origin.as_ref().and_then(|one| one.culprit.as_ref());
    let allow = match culprit.map(|one| (one.file.as_ref(), one.line)) {
        Some((Some(file), Some(line))) => format!("--allow {}:{line}", file.base_name()),
        _ => match &remains.class {
            Some(class) => format!("--allow {class}"),
            None => "[[cleared]] in fdguard.toml".to_owned(),
        },
    };
    format!(
        "Close it on every path out of the function that owns it, the failing ones too. If it is meant to stay open: {allow}."
    )
}

/// `1 descriptor`, `5 descriptors`.
pub(super) fn descriptors(count: u64) -> String {
    match count {
        1 => "1 descriptor".to_owned(),
        count => format!("{count} descriptors"),
    }
}
