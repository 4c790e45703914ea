//! The wording for descriptors that are left open.

use super::Remains;
use crate::blame::is_programs;
use crate::origin::{Culprit, Origin};
use crate::{Text, units};

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

/// `regular /srv/a.log`, or the call that opened it if nothing else is known.
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
    // A line of a library or of a launcher would allow what all of its callers open.
    let own = remains
        .origin
        .as_ref()
        .filter(|one| is_programs(&one.stack));
    let culprit = own.and_then(|one| one.culprit.as_ref());
    let path = remains.target.as_ref().and_then(Text::as_str);
    let path = path.filter(|path| path.starts_with('/') && !path.contains(' '));
    let allow = match culprit.map(|one| (one.file.as_ref(), one.line)) {
        Some((Some(file), Some(line))) => format!("--allow {}:{line}", file.base_name()),
        _ => match (path, &remains.class) {
            (Some(path), _) => format!("--allow {path}"),
            (None, Some(class)) => format!("--allow {class}"),
            (None, None) => "[[cleared]] in fdguard.toml".to_owned(),
        },
    };
    format!(
        "Close it on every path out of the function that owns it, including error paths. If it should stay open, use {allow}."
    )
}

/// `1 descriptor`, `5 descriptors`.
pub(super) fn descriptors(count: u64) -> String {
    units::counted(count, "descriptor")
}

#[cfg(test)]
mod tests {
    use super::next_step;
    use crate::Class;
    use crate::proof::testing::{frame, origin};
    use crate::proof::{Remains, RemainsVerdict};

    #[test]
    fn an_entry_point_is_never_offered_to_be_allowed() {
        let package = "/srv/env/lib/python3.11/site-packages/uvicorn/server.py";
        let launched = vec![
            frame(package, "startup", 162),
            frame("/srv/env/bin/uvicorn", "<module>", 8),
        ];
        let mut remains = Remains {
            pid: 7,
            comm: "uvicorn".into(),
            class: Some(Class::Pipe),
            target: Some("pipe:[7]".into()),
            call: "pipe".to_owned(),
            count: 1,
            fds: vec![3],
            judged: RemainsVerdict::Left,
            why: String::new(),
            origin: Some(origin(launched.clone())),
            exercise: None,
            per_cycle: None,
            allowed_by: None,
        };
        assert!(next_step(&remains).ends_with("--allow pipe."));
        remains.target = Some("/var/log/a.log".into());
        assert!(next_step(&remains).ends_with("--allow /var/log/a.log."));
        let own = [vec![frame("/srv/app.py", "serve", 7)], launched].concat();
        remains.origin = Some(origin(own));
        assert!(next_step(&remains).ends_with("--allow app.py:7."));
    }
}
