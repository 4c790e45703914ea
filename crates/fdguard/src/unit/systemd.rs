//! A service of systemd.

use std::fmt::Write as _;

use fdguard_core::rule::RuleTable;

use super::lint::{self, Check, Unit};
use super::read::{self, UnitNode, UnreadableUnit};
use super::{UnitError, UnitKind, UnitSpec};

/// Services of systemd.
pub(super) struct Systemd;

impl UnitKind for Systemd {
    fn name(&self) -> &'static str {
        "systemd"
    }

    fn signs(&self) -> (&'static [&'static str], &'static [&'static str]) {
        (&["service"], &["[Service]"])
    }

    fn write(&self, spec: &UnitSpec) -> Result<String, UnitError> {
        let command: Vec<String> = spec.words().iter().map(|word| quote(word)).collect();
        let name = &spec.name;
        let (soft, hard) = spec.files;
        let dir = match &spec.dir {
            Some(dir) => format!("WorkingDirectory={}\n", specifiers(dir)?),
            None => String::new(),
        };
        let (place, tool, network, wanted) = if spec.user {
            let place = "~/.config/systemd/user";
            (place, "systemctl --user", "", "default.target")
        } else {
            let network = "Wants=network-online.target\nAfter=network-online.target\n";
            (
                "/etc/systemd/system",
                "systemctl",
                network,
                "multi-user.target",
            )
        };
        Ok(format!(
            "# Written by `fdguard unit systemd`. Save it as {place}/{name}.service, then run
# `{tool} daemon-reload` and `{tool} enable --now {name}`.
[Unit]
Description={name}, kept alive by fdguard
{network}# fdguard restarts the program. systemd restarts fdguard, at most five times in five minutes.
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
# fdguard stays in the foreground and notifies systemd when the program is ready.
Type=notify
NotifyAccess=main
ExecStart={command}
{dir}Restart=on-failure
RestartSec=2
# A restart does not help here: invalid configuration, usage error, port in use.
RestartPreventExitStatus=78 64 2
TimeoutStartSec=120
# Must exceed fdguard's grace period ({grace}), or fdguard is killed while it stops the program.
TimeoutStopSec={patience}
# fdguard pings the watchdog only while budgets and health checks are met.
WatchdogSec=60
# Send SIGTERM to fdguard only, then SIGKILL to whatever remains.
KillMode=mixed
Delegate=yes
FileDescriptorStoreMax=128
LimitNOFILE={soft}:{hard}
OOMPolicy=continue

[Install]
WantedBy={wanted}
",
            command = command.join(" "),
            grace = fdguard_core::units::exact_duration(spec.grace),
            patience = spec.patience(),
        ))
    }

    fn read(&self, text: &str) -> Result<UnitNode, UnreadableUnit> {
        read::ini::read(text, read::ini::Style::Systemd)
    }

    fn services<'a>(&self, file: &'a UnitNode) -> Vec<Unit<'a>> {
        lint::systemd::units(file)
    }

    fn rules(&self) -> RuleTable<Check> {
        lint::systemd::RULES
    }
}

/// A path in a setting that has specifiers but no quotes.
fn specifiers(text: &str) -> Result<String, UnitError> {
    if text.chars().any(char::is_control) || text.ends_with('\\') {
        let why = format!("{text:?} cannot be written to a systemd unit");
        return Err(UnitError(why));
    }
    Ok(text.replace('%', "%%"))
}

/// Quotes a word of a command line: `%` and `$` are doubled, and anything that is not plain gets
/// quotes with C escapes.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@/.,:=+-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in word.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '%' => quoted.push_str("%%"),
            '$' => quoted.push_str("$$"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_ascii_control() => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\x{:02x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Splits a command line as systemd does; `None` if a quote is not closed.
pub(super) fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = take_word(rest)?;
        words.push(word);
        rest = after.trim_start();
    }
    Some(words)
}

fn take_word(text: &str) -> Option<(String, &str)> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut open = None;
    let mut chars = text.char_indices().peekable();
    let mut buffer = [0; 4];
    while let Some((at, c)) = chars.next() {
        match (c, open) {
            (c, None) if c.is_ascii_whitespace() => {
                return Some((String::from_utf8_lossy(&bytes).into_owned(), &text[at..]));
            }
            ('"' | '\'', None) => open = Some(c),
            (c, Some(quote)) if c == quote => open = None,
            ('\\', _) => bytes.extend(escape(&mut chars)?),
            // Specifiers are not expanded: only their doubling is undone.
            ('%' | '$', _) => {
                bytes.extend(c.encode_utf8(&mut buffer).as_bytes());
                if chars.peek().is_some_and(|(_, next)| *next == c) {
                    chars.next();
                }
            }
            (c, _) => bytes.extend(c.encode_utf8(&mut buffer).as_bytes()),
        }
    }
    let whole = open.is_none();
    whole.then(|| (String::from_utf8_lossy(&bytes).into_owned(), ""))
}

fn escape(chars: &mut std::iter::Peekable<std::str::CharIndices<'_>>) -> Option<Vec<u8>> {
    let (_, c) = chars.next()?;
    let one = |byte: u8| Some(vec![byte]);
    match c {
        'n' => one(b'\n'),
        't' => one(b'\t'),
        'r' => one(b'\r'),
        's' => one(b' '),
        'a' => one(7),
        'b' => one(8),
        'f' => one(12),
        'v' => one(11),
        'x' => {
            let digits: String = chars.by_ref().take(2).map(|(_, c)| c).collect();
            one(u8::from_str_radix(&digits, 16).ok()?)
        }
        other => Some(other.to_string().into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{quote, split};

    #[test]
    fn command_lines_that_people_write() {
        let words = |line: &str| split(line).unwrap();
        assert_eq!(words("/bin/a  b\tc"), ["/bin/a", "b", "c"]);
        assert_eq!(
            words(r#"/bin/sh -c 'exec a "b" &'"#),
            ["/bin/sh", "-c", "exec a \"b\" &"]
        );
        assert_eq!(
            words(r"a\x20b 100%% $$HOME %i"),
            ["a b", "100%", "$HOME", "%i"]
        );
        assert_eq!(split("'open"), None);
        assert_eq!(split("a\\"), None);
    }

    #[test]
    fn a_word_that_systemd_would_take_for_something_else_is_quoted() {
        assert_eq!(quote(";"), "\";\"");
        assert_eq!(quote("100%"), "\"100%%\"");
        assert_eq!(quote("$HOME"), "\"$$HOME\"");
        assert_eq!(quote(""), "\"\"");
        assert_eq!(quote("--port=80"), "--port=80");
    }

    proptest! {
        #[test]
        fn every_word_comes_back(words in proptest::collection::vec("[^\\x00]{0,12}", 1..6)) {
            let line: Vec<String> = words.iter().map(|word| quote(word)).collect();
            prop_assert_eq!(split(&line.join(" ")), Some(words));
        }

        #[test]
        fn any_line_is_survived(line: String) {
            drop(split(&line));
        }
    }
}
