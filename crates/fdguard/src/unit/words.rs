//! What the words of a command reveal about its behaviour.

use std::time::Duration;

use fdguard_core::units::parse_duration;

/// How long `fdguard run` waits by default.
const GRACE: Duration = Duration::from_secs(10);

/// Arguments that put a program into the background.
const BACKGROUND: [&str; 6] = [
    "--daemon",
    "--daemonize",
    "--daemonise",
    "--detach",
    "--background",
    "-D",
];
/// Programs whose only purpose is to detach another.
const DETACHERS: [&str; 4] = ["nohup", "setsid", "daemonize", "start-stop-daemon"];
/// Programs whose `start` stays in the foreground.
const FOREGROUND_START: [&str; 8] = [
    "npm", "yarn", "pnpm", "bun", "deno", "make", "just", "cargo",
];
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ash", "ksh"];

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The arguments of `fdguard run` itself, up to `--`, if the command is one.
pub(super) fn fdguard_run(words: &[String]) -> Option<&[String]> {
    let at = words
        .iter()
        .take(3)
        .position(|word| base(word) == "fdguard")?;
    let rest = words.get(at + 1..)?;
    let end = rest
        .iter()
        .position(|word| word == "--")
        .unwrap_or(rest.len());
    (rest.first()? == "run").then(|| &rest[..end])
}

/// How long `fdguard run` waits from the first signal to KILL; `None` for another command.
pub(super) fn grace(words: &[String]) -> Option<Duration> {
    let run = fdguard_run(words)?;
    let mut given = None;
    for (at, word) in run.iter().enumerate() {
        if word == "--stop-grace" {
            given = run.get(at + 1).map(String::as_str);
        } else if let Some(value) = word.strip_prefix("--stop-grace=") {
            given = Some(value);
        }
    }
    Some(given.and_then(span).unwrap_or(GRACE))
}

/// Why the command seems to leave a program in the background and end; the words verbatim.
pub(super) fn daemonises(words: &[String]) -> Option<String> {
    // Only the program that fdguard starts counts, not fdguard's own arguments.
    let words = match words.iter().position(|word| word == "--") {
        Some(at) if fdguard_run(words).is_some() => &words[at + 1..],
        _ => words,
    };
    let program = base(words.first()?);
    if SHELLS.contains(&program) {
        let at = words
            .iter()
            .position(|word| word.starts_with('-') && word.ends_with('c'))?;
        return script(words.get(at + 1)?);
    }
    if DETACHERS.contains(&program) {
        return Some(format!("{program} detaches the program"));
    }
    let is_start = words.get(1).is_some_and(|word| word == "start");
    if is_start && !FOREGROUND_START.contains(&program) {
        return Some(format!("`{program} start` starts a daemon and exits"));
    }
    let background = words.iter().skip(1).find(|word| {
        // For sshd this means the opposite.
        BACKGROUND.contains(&word.as_str()) && !(program == "sshd" && *word == "-D")
    });
    if let Some(word) = background {
        return Some(format!("{word} puts the program in the background"));
    }
    let ends = words.iter().any(|word| word == "&");
    ends.then(|| "& only works in a shell, and suggests a background process".to_owned())
}

/// A script for a shell.
fn script(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let detacher = words.iter().find(|word| DETACHERS.contains(&base(word)));
    if let Some(word) = detacher {
        return Some(format!("{word} detaches the program"));
    }
    if let Some(word) = words.iter().find(|word| BACKGROUND[..5].contains(word)) {
        return Some(format!("{word} puts the program in the background"));
    }
    let bytes = text.as_bytes();
    let is_alone = |at: usize| {
        let before = at.checked_sub(1).map_or(b' ', |at| bytes[at]);
        let after = bytes.get(at + 1).copied().unwrap_or(b' ');
        bytes[at] == b'&' && !b"&><|\\".contains(&before) && !b"&>".contains(&after)
    };
    // A shell that waits for them stays in the foreground.
    let waits = words.contains(&"wait");
    let found = (0..bytes.len()).any(is_alone) && !waits;
    found.then(|| "& puts the program in the background, and the shell exits".to_owned())
}

/// Whether it looks like a script that prepares something and exits.
pub(super) fn is_bootstrap(words: &[String]) -> bool {
    let hint = |word: &String| {
        let name = base(word);
        let stem = name.split('.').next().unwrap_or(name);
        matches!(
            stem,
            "bootstrap" | "start" | "launch" | "launcher" | "run-detached"
        ) || stem.ends_with("ctl")
    };
    words.iter().take(3).any(hint)
}

/// A time in a unit file; `None` for `infinity`.
pub(super) fn span(text: &str) -> Option<Duration> {
    parse_duration(text).ok()
}

#[cfg(test)]
mod tests {
    use super::{daemonises, fdguard_run, grace, is_bootstrap};

    fn words(line: &str) -> Vec<String> {
        super::super::supervisord::split(line).unwrap()
    }

    #[test]
    fn what_goes_into_the_background() {
        for line in [
            "redis-server --daemonize yes",
            "/usr/sbin/nginx.sh start",
            "ctl.sh start",
            "nohup python3 server.py",
            "/usr/bin/setsid ./server",
            "sh -c 'python3 server.py &'",
            "bash -lc 'cd /srv && nohup ./server > log 2>&1'",
            "fdguard run -- apachectl start",
            "./server &",
            "sleep -D",
        ] {
            assert!(daemonises(&words(line)).is_some(), "{line}");
        }
    }

    #[test]
    fn what_stays_in_the_foreground() {
        for line in [
            "npm start",
            "/usr/sbin/sshd -D",
            "python3 server.py --port 80",
            "sh -c 'exec ./server > log 2>&1'",
            "sh -c 'cd /srv && exec ./server'",
            "sh -c './server &> log'",
            "sh -c './a & ./b & wait'",
            "fdguard run --name start -- ./server",
            "java -Dx=y -jar server.jar",
            "sh",
        ] {
            assert_eq!(daemonises(&words(line)), None, "{line}");
        }
    }

    #[test]
    fn the_grace_of_fdguard_and_of_nobody_else() {
        let seconds = |line: &str| grace(&words(line)).map(|it| it.as_secs());
        assert_eq!(
            seconds("/usr/bin/fdguard run -- a --stop-grace 5s"),
            Some(10)
        );
        assert_eq!(seconds("fdguard run --stop-grace 30s -- a"), Some(30));
        assert_eq!(
            seconds("/usr/bin/env fdguard run --stop-grace=1m -- a"),
            Some(60)
        );
        assert_eq!(seconds("fdguard watch 1"), None);
        assert_eq!(fdguard_run(&words("a b c d fdguard run")), None);
    }

    #[test]
    fn bootstraps_by_their_names() {
        assert!(is_bootstrap(&words("python3 bootstrap.py --no-browser")));
        assert!(is_bootstrap(&words("/opt/app/start.sh")) && is_bootstrap(&words("apachectl")));
        assert!(!is_bootstrap(&words("python3 server.py")));
    }
}
