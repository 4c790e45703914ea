//! A program section of supervisord.

use fdguard_core::rule::RuleTable;

use super::lint::{self, Check, Unit};
use super::read::{self, UnitNode, UnreadableUnit};
use super::{UnitError, UnitKind, UnitSpec};

/// Program sections of supervisord.
pub(super) struct Supervisord;

impl UnitKind for Supervisord {
    fn name(&self) -> &'static str {
        "supervisord"
    }

    fn signs(&self) -> (&'static [&'static str], &'static [&'static str]) {
        (&[], &["[program:", "[supervisord]"])
    }

    fn write(&self, spec: &UnitSpec) -> Result<String, UnitError> {
        let words: Result<Vec<String>, UnitError> =
            spec.words().iter().map(|it| quote(it)).collect();
        let command = words?.join(" ");
        let name = &spec.name;
        let (patience, soft) = (spec.patience(), spec.files.0);
        let dir = match &spec.dir {
            Some(dir) => format!("directory={}\n", value(dir)?),
            None => String::new(),
        };
        Ok(format!(
            "; Written by `fdguard unit supervisord`. Save it as /etc/supervisor/conf.d/{name}.conf and run `supervisorctl update`.
; Programs inherit the descriptor limit of supervisord. Set it in the main configuration file:
;   [supervisord]
;   minfds={soft}
[program:{name}]
command={command}
{dir}autostart=true
; fdguard restarts the program; supervisord restarts fdguard, unless a restart cannot help:
; invalid configuration (78), usage error (64), port in use (2).
autorestart=unexpected
exitcodes=0,2,64,78
startsecs=3
startretries=5
stopsignal=TERM
; Must exceed fdguard's grace period, or fdguard is killed while it stops the program.
stopwaitsecs={patience}
stopasgroup=true
killasgroup=true
stdout_logfile_maxbytes=10MB
stdout_logfile_backups=5
redirect_stderr=true
"
        ))
    }

    fn read(&self, text: &str) -> Result<UnitNode, UnreadableUnit> {
        read::ini::read(text, read::ini::Style::Supervisord)
    }

    fn services<'a>(&self, file: &'a UnitNode) -> Vec<Unit<'a>> {
        lint::supervisord::units(file)
    }

    fn rules(&self) -> RuleTable<Check> {
        lint::supervisord::RULES
    }
}

fn check(text: &str) -> Result<(), UnitError> {
    if text
        .chars()
        .any(|c| c.is_control() || "\u{2028}\u{2029}\u{1c}".contains(c))
    {
        let why = format!("{text:?}: supervisord files cannot contain control characters");
        return Err(UnitError(why));
    }
    Ok(())
}

/// A value other than a command: it has no quotes, so a comment must not begin in it.
fn value(text: &str) -> Result<String, UnitError> {
    check(text)?;
    if text.contains(" ;") || text.contains(" #") || text.trim() != text {
        let why = format!("{text:?} cannot be written to a supervisord file");
        return Err(UnitError(why));
    }
    Ok(text.replace('%', "%%"))
}

/// Quotes a word of a command: `%` is doubled, and it is quoted as in a shell. supervisord cuts the
/// line at a `;` or `#` after a space before it parses quotes, so the quotes are closed and
/// reopened between them.
fn quote(word: &str) -> Result<String, UnitError> {
    check(word)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@/.,:=+-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return Ok(word.to_owned());
    }
    let mut quoted = String::from("'");
    let mut before = ' ';
    for c in word.chars() {
        match c {
            '\'' => quoted.push_str("'\"'\"'"),
            '%' => quoted.push_str("%%"),
            ';' | '#' if before.is_whitespace() => {
                quoted.push_str("''");
                quoted.push(c);
            }
            c => quoted.push(c),
        }
        before = c;
    }
    quoted.push('\'');
    Ok(quoted)
}

/// Splits a command as supervisord does: like a shell, without variables.
pub(super) fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '\'' => break,
                        c => word.push(undoubled(c, &mut chars)),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '"' => break,
                        '\\' if matches!(chars.peek(), Some('"' | '\\')) => {
                            word.extend(chars.next())
                        }
                        c => word.push(undoubled(c, &mut chars)),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(chars.next()?),
            c => {
                let c = undoubled(c, &mut chars);
                word.get_or_insert_default().push(c);
            }
        }
    }
    words.extend(word);
    Some(words)
}

fn undoubled(c: char, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> char {
    if c == '%' && chars.peek() == Some(&'%') {
        chars.next();
    }
    c
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{quote, split};

    #[test]
    fn no_comment_begins_inside_of_a_word() {
        for word in ["a ;b", "a #b", "#", ";", " ; # "] {
            let quoted = quote(word).unwrap();
            assert!(!quoted.contains(" ;") && !quoted.contains(" #"), "{quoted}");
            assert_eq!(split(&quoted).unwrap(), [word]);
        }
        assert!(quote("a\nb").is_err());
    }

    proptest! {
        #[test]
        fn every_word_comes_back(words in proptest::collection::vec("[^\\x00-\\x1f\\x7f-\\xa0\u{2028}\u{2029}]{0,12}", 1..6)) {
            let quoted: Vec<String> = words.iter().map(|word| quote(word).unwrap()).collect();
            prop_assert_eq!(split(&quoted.join(" ")), Some(words));
        }

        #[test]
        fn any_line_is_survived(line: String) {
            drop(split(&line));
        }
    }
}
